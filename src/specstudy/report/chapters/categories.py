"""Means by category of prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specstudy.analysis.join import Tables
from specstudy.analysis.study import AnalysisResult
from specstudy.report.chapters.chapter import Chapter, Context
from specstudy.report.narrative import overview


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context | None:
    if result.prompts.empty:
        return None
    sizes = result.prompts["category"].value_counts().sort_index()
    return {"rows": [_row(result, str(category), n) for category, n in [*sizes.items(), ("all", len(result.prompts))]]}


def _row(result: AnalysisResult, category: str, n: int) -> dict[str, Any]:
    measures = overview.summary_measures(result)
    cells = {name: overview.mean_row(result, measure, category) for name, measure in measures.items()}
    return {"category": category, "n": n, "cells": cells}


CHAPTER = Chapter("categories", "Categories of prompts", context)
