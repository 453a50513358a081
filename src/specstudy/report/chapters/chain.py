"""The chain over prompts: every pair of measures, drawn and in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specstudy.analysis.correlations import METHODS, chain_pairs
from specstudy.analysis.join import Tables
from specstudy.analysis.study import AnalysisResult
from specstudy.report.chapters.chapter import Chapter, Context

PARTIAL_SUBSETS = ("all", "within_category", "given_length", "within_category_given_length")


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context | None:
    if result.prompts.empty:
        return None
    return {"pairs": _pairs(result), "subsets": PARTIAL_SUBSETS}


def _pairs(result: AnalysisResult) -> list[dict[str, Any]]:
    """Every pair of the chain at the primary condition: a correlation a subset, Spearman then Pearson."""
    return [
        {"x": x, "y": y, "method": method, "cells": [result.find("prompt", s, x, y, method) for s in PARTIAL_SUBSETS]}
        for x, y in chain_pairs({result.primary: result.suffixes[result.primary]} if result.primary else {})
        for method in reversed(METHODS)
    ]


CHAPTER = Chapter("chain", "The chain over prompts", context)
