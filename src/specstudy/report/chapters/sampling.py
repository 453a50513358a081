"""Acceptance by temperature and top_p, and how far apart the cells are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specstudy.analysis.join import Tables
from specstudy.analysis.measures import ACCEPTANCE_MEASURES, phrase
from specstudy.analysis.study import AnalysisResult
from specstudy.condition import Condition
from specstudy.report.chapters.chapter import Chapter, Context


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context | None:
    cells = result.samplings
    if len(cells) < 2:
        return None
    measures = result.comparison.measures
    return {
        "measures": [phrase(name) for name in ACCEPTANCE_MEASURES],
        "cells": [(condition, [measures[condition, name] for name in ACCEPTANCE_MEASURES]) for condition in cells],
        "largest": [row for name in ACCEPTANCE_MEASURES if (row := _largest(result, name))],
        "n_pairs": len(cells) * (len(cells) - 1) // 2,
    }


def _largest(result: AnalysisResult, measure: str) -> dict[str, Any] | None:
    """The pair of cells whose paired difference is largest; None where no pair has one."""
    cells = set(result.samplings)
    known = [
        (condition, reference, row)
        for (condition, reference, name), row in result.comparison.differences.items()
        if name == measure and {condition, reference} <= cells and row.estimate is not None
    ]
    if not known:
        return None
    condition, reference, row = max(known, key=lambda pair: abs(pair[2].estimate or 0.0))
    return {"words": phrase(measure), "cell": _cell(condition), "reference": _cell(reference), "row": row}


def _cell(condition: Condition) -> str:
    return f"temperature {condition.temperature:g}, top_p {condition.top_p:g}"


CHAPTER = Chapter("sampling", "Temperature and top_p", context)
