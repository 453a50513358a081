"""Speed and cost at every condition that was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specstudy.analysis.join import Tables
from specstudy.analysis.measures import MEASURES, condition_name, label, measures_in
from specstudy.analysis.study import AnalysisResult
from specstudy.report.chapters.chapter import Chapter, Context
from specstudy.report.narrative import overview
from specstudy.report.narrative.machine import machine_sentences


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context | None:
    if not result.suffixes:
        return None
    return {
        "names": [condition_name(condition, result.suffixes) for condition in result.suffixes],
        "rows": [_row(result, measure) for measure in measures_in("conditions")],
        "warnings": machine_sentences(result),
        "sittings": result.machine.sittings.to_dict("records"),
    }


def _row(result: AnalysisResult, measure: str) -> dict[str, Any]:
    cells = [overview.mean_row(result, result.at(measure, condition)) for condition in result.suffixes]
    return {"measure": label(measure), "digits": MEASURES[measure].digits, "cells": cells}


CHAPTER = Chapter("speed", "Speed", context)
