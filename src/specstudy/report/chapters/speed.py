"""Speed and cost at every setting that was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specstudy.analysis.join import Tables
from specstudy.analysis.measures import MEASURES, label, measures_in, setting_name
from specstudy.analysis.study import AnalysisResult
from specstudy.report import words
from specstudy.report.chapters.chapter import Chapter, Context


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context | None:
    if not result.suffixes:
        return None
    return {
        "names": [setting_name(setting, result.suffixes) for setting in result.suffixes],
        "rows": [_row(result, measure) for measure in measures_in("settings")],
    }


def _row(result: AnalysisResult, measure: str) -> dict[str, Any]:
    cells = [words.mean_row(result, result.at(measure, setting)) for setting in result.suffixes]
    return {"measure": label(measure), "digits": MEASURES[measure].digits, "cells": cells}


CHAPTER = Chapter("speed", "Speed", context)
