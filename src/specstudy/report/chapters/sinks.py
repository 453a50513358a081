"""Sinks and context health: where attention gathers, what predicts the answer's attention, which threshold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specstudy.analysis.join import Tables
from specstudy.analysis.sinks.positions import Z_MEASURES
from specstudy.analysis.study import AnalysisResult
from specstudy.report.chapters.chapter import Chapter, Context
from specstudy.report.narrative import sinks as sink_narrative


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context | None:
    sinks = result.sinks
    if sinks.positions.empty:
        return None
    return {
        "findings": sink_narrative.findings(result),
        "measures": [sink_narrative.MEASURE_WORDS[measure] for measure in Z_MEASURES],
        "roles": _roles(result),
        "predictions": [
            (sink_narrative.POSITION_WORDS[r.positions], sink_narrative.PREDICTOR_WORDS[r.predictor], r)
            for r in sinks.sink_predictions
        ],
        "sink_tokens": [{"measure": sink_narrative.MEASURE_WORDS[r.measure], "row": r} for r in sinks.sink_tokens],
        "thresholds": [
            {"measure": sink_narrative.MEASURE_WORDS[flags.measure], "flags": flags, "health": health}
            for flags, health in zip(sinks.sink_thresholds, sinks.health_thresholds, strict=True)
        ],
        "distributions": sinks.context_distributions,
        "pairs": sinks.context_correlations,
    }


def _roles(result: AnalysisResult) -> list[dict[str, Any]]:
    """One line a part of the template, with a cell a measure."""
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for row in result.sinks.sink_roles:
        line = lines.setdefault((row.place, row.structural_role), {"name": sink_narrative.role_words(row), "cells": []})
        line["cells"].append(row)
    return list(lines.values())


CHAPTER = Chapter("sinks", "Sinks and context health", context)
