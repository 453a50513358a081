"""The scatter plots of the chain."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specstudy.analysis.fit import fitted_line
from specstudy.analysis.join import Tables
from specstudy.analysis.means import numbered
from specstudy.analysis.measures import (
    ANSWER_ACCEPTANCE_MEASURE,
    DRAFT_ENTROPY_MEASURE,
    ENTROPY_MEASURE,
    PRIMARY_CONTEXT_MEASURE,
    Key,
    label,
)
from specstudy.analysis.reliability import ceiling
from specstudy.analysis.study import AnalysisResult
from specstudy.records import Correlation
from specstudy.report.style import (
    INK,
    MARKS_AS_SHAPES,
    PAPER,
    category_marks,
    interval,
    new_figure,
    number,
    percent,
    wrapped,
)


def attention_to_entropy(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Context health against mean entropy."""
    return _scatter(result, PRIMARY_CONTEXT_MEASURE, ENTROPY_MEASURE)


def entropy_to_acceptance(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Mean verifier entropy against expected acceptance on the same text."""
    return _scatter(result, ENTROPY_MEASURE, ANSWER_ACCEPTANCE_MEASURE)


def draft_entropy_to_acceptance(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Mean draft entropy against expected acceptance on the same text."""
    return _scatter(result, DRAFT_ENTROPY_MEASURE, ANSWER_ACCEPTANCE_MEASURE)


def attention_to_acceptance(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Context health against expected acceptance."""
    return _scatter(result, PRIMARY_CONTEXT_MEASURE, ANSWER_ACCEPTANCE_MEASURE)


def _scatter(result: AnalysisResult, x: str, y: Key) -> Figure | None:
    if x not in result.prompts or y not in result.prompts:
        return None
    prompts = result.prompts.dropna(subset=[x, y])
    if prompts.empty:
        return None
    figure = new_figure()
    axes = figure.subplots()
    for category, mark in category_marks(result.prompts["category"]).items():
        rows = prompts[prompts["category"] == category]
        dots: dict[str, Any] = {
            "s": 34,
            "color": mark.color,
            "marker": mark.marker,
            "edgecolors": PAPER,
            "linewidths": 0.6,
        }
        axes.scatter(rows[x], rows[y], label=category, zorder=3, rasterized=len(prompts) > MARKS_AS_SHAPES, **dots)
    _draw_fit(axes, result, prompts, x, y)
    axes.set(xlabel=label(x), ylabel=wrapped(label(y), 48))
    axes.set_title(_title(result, x, y))
    figure.legend(loc="outside lower center", ncols=5, handletextpad=0.2, columnspacing=1.2)
    return figure


def _draw_fit(axes: Axes, result: AnalysisResult, prompts: pd.DataFrame, x: str, y: Key) -> None:
    groups = numbered(prompts["group"])[0]
    line = fitted_line(prompts[x].to_numpy(), prompts[y].to_numpy(), result.settings, groups)
    axes.fill_between(line["x"], line["low"], line["high"], color=INK, alpha=0.12, linewidth=0, zorder=1)
    axes.plot(line["x"], line["value"], color=INK, linewidth=1.4, zorder=2)


def _title(result: AnalysisResult, x: str, y: Key) -> str:
    overall = result.find("prompt", "all", x, y)
    if overall is None or overall.estimate is None:
        return f"no correlation: {overall.null_reason if overall else 'not measured'}"
    limit = ceiling(result.reliability, x, y)
    allowed = "" if limit is None else f"; noise ceiling {number(limit)}"
    lines = [f"Spearman {_estimate(overall)}, n = {overall.n}{allowed}"]
    inside = result.find("prompt", "given_confounders", x, y)
    if inside is not None and inside.estimate is not None:
        lines.append(f"adjusted for category, length and surprisal: {_estimate(inside)}")
    return "\n".join([*lines, f"brackets and band: {percent(result.settings.confidence)} intervals over prompts"])


def _estimate(record: Correlation) -> str:
    return f"{number(record.estimate)} {interval(record.ci_low, record.ci_high)}"
