"""The mechanism: what predicts a token's fate, all else equal, and by which path context would act."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specstudy.analysis.between_within import DRAFT, OUTCOME, VERIFIER
from specstudy.analysis.bootstrap import Estimate
from specstudy.analysis.join import Tables
from specstudy.analysis.mediation import CAUTION
from specstudy.analysis.predictors import METRICS, PREDICTORS, REFERENCE
from specstudy.analysis.study import AnalysisResult
from specstudy.report.chapters.chapter import Chapter, Context
from specstudy.report.narrative.between_within import level_sentences


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context | None:
    mechanism = result.mechanism
    levels = [*level_sentences(mechanism.between_within)]
    if not levels and all(e.value is None for e in (*mechanism.scores.values(), *mechanism.paths.values())):
        return None
    return {
        "metrics": METRICS,
        "reference": REFERENCE,
        "rows": [{"name": p.name, "cells": list(_cells(mechanism.scores, p.name))} for p in PREDICTORS],
        "levels": levels,
        "simple": {
            x: [result.find("token", subset, x, OUTCOME) for subset in ("all", "within_prompt")]
            for x in (VERIFIER, DRAFT)
        },
        "caution": CAUTION,
    }


def _cells(scores: Mapping[tuple[str, str, str], Estimate], name: str) -> list[Estimate]:
    """Each metric of a predictor, then its AUROC minus that of the reference."""
    difference = scores.get((name, "auroc", REFERENCE), Estimate(0))
    return [*(scores[name, metric, ""] for metric in METRICS), difference]


CHAPTER = Chapter("mechanism", "Mechanism", context)
