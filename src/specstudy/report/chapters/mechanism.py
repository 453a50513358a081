"""The mechanism: what predicts a token's fate, all else equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specstudy.analysis.between_within import DRAFT, OUTCOME, VERIFIER
from specstudy.analysis.bootstrap import Estimate
from specstudy.analysis.join import Tables
from specstudy.analysis.predictors import PREDICTORS, REFERENCE, SHARE_OF_CEILING
from specstudy.analysis.study import AnalysisResult
from specstudy.report.chapters.chapter import Chapter, Context
from specstudy.report.narrative.between_within import level_sentences

METRICS = ("auroc", SHARE_OF_CEILING, "brier_score", "calibration_error", "calibration_error_by_chance")


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context | None:
    mechanism = result.mechanism
    levels = [*level_sentences(mechanism.between_within)]
    if not levels and all(e.value is None for e in mechanism.scores.values()):
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
    }


def _cells(scores: Mapping[tuple[str, str, str], Estimate], name: str) -> list[Estimate]:
    """Each metric of a predictor, then its AUROC minus that of the reference."""
    asked = [*((name, metric, "") for metric in METRICS), (name, "auroc", REFERENCE)]
    return [scores.get(key, Estimate(0)) for key in asked]


CHAPTER = Chapter("mechanism", "Mechanism", context)
