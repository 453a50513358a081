"""Speed and cost at every setting that was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specstudy.analysis.join import Tables
from specstudy.analysis.measures import ACCEPTANCE_MEASURES, COST_MEASURES, SPEED_MEASURES, label
from specstudy.analysis.study import AnalysisResult
from specstudy.report import words
from specstudy.report.chapters.chapter import Chapter, Context

DIGITS = {"cost_ratio_flops": 3, "cost_ratio_time": 3, "tokens_per_s": 1}
"""Decimals where two are too few or too many: eight settings have to fit beside each other."""


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context | None:
    if not result.suffixes:
        return None
    measures = (*ACCEPTANCE_MEASURES, *SPEED_MEASURES, *COST_MEASURES)
    return {"rows": [_row(result, measure) for measure in measures]}


def _row(result: AnalysisResult, measure: str) -> dict[str, Any]:
    cells = [words.mean_row(result, measure + suffix) for suffix in result.suffixes.values()]
    return {"measure": label(measure), "digits": DIGITS.get(measure, 2), "cells": cells}


CHAPTER = Chapter("speed", "Speed", context)
