"""Gammas side by side: acceptance, tokens a round and speed, measured and predicted."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from specstudy.analysis.join import Tables
from specstudy.analysis.measures import MEASURES, label, measures_in
from specstudy.analysis.study import AnalysisResult
from specstudy.report.chapters.chapter import Chapter, Context


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context | None:
    if len(result.gammas) < 2:
        return None
    measures = result.comparison.measures
    errors = result.comparison.theory_errors.dropna(subset="value").sort_values("value").to_dict("records")
    return {
        "gammas": [condition.gamma for condition in result.gammas],
        "rows": [
            (label(name), MEASURES[name].digits, [measures[condition, name] for condition in result.gammas])
            for name in measures_in("gammas")
        ],
        "errors": [{**error, "words": label(error["measure"])} for error in errors],
        "nearest": _nearest(errors),
        "n": max(measures[condition, "alpha"].n for condition in result.gammas),
    }


def _nearest(errors: list[dict[Hashable, Any]]) -> str:
    """Which theory is nearest to the clock, and which ones' intervals overlap with its own."""
    if not errors:
        return ""
    first, *others = errors
    tied = [label(error["measure"]) for error in others if not error["low"] > first["high"]]
    words = f"Nearest to the clock: {label(first['measure'])}"
    return f"{words}; the intervals of {' and '.join(tied)} overlap with its own." if tied else f"{words}."


CHAPTER = Chapter("gammas", "Drafts of different lengths", context)
