"""Entropy, acceptance and speedup by category."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specstudy.analysis.join import Tables
from specstudy.analysis.measures import ENTROPY_MEASURE, PRIMARY_ACCEPTANCE_MEASURE, Key, label
from specstudy.analysis.study import AnalysisResult
from specstudy.report.style import INK, MARKS_AS_SHAPES, bars_note, category_marks, new_figure, wrapped


def by_category(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Every prompt and the category's mean with its interval, for entropy, expected alpha and speedup."""
    measures: list[Key] = [ENTROPY_MEASURE, result.at(PRIMARY_ACCEPTANCE_MEASURE), result.at("speedup")]
    measures = [m for m in measures if m in result.prompts and result.prompts[m].notna().any()]
    if not measures:
        return None
    means = result.prompts[measures[0]].groupby(result.prompts["category"]).mean().sort_values()
    figure = new_figure(1.6 + 2.8 * len(measures), 0.9 + 0.5 * len(means))
    panels = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    for axes, measure in zip(panels, measures, strict=True):
        _strip(axes, result, measure, list(means.index))
    sizes = result.prompts["category"].value_counts()
    panels[0].set_yticks(range(len(means)), [f"{name} (n = {sizes[name]})" for name in means.index])
    panels[0].invert_yaxis()
    panels[0].set_title(bars_note(result.settings.confidence))
    return figure


def _strip(axes: Axes, result: AnalysisResult, measure: Key, categories: list[str]) -> None:
    marks = category_marks(result.prompts["category"])
    means = result.by_category[result.by_category["measure"] == measure].set_index("category")
    for place, category in enumerate(categories):
        values = result.prompts[measure][result.prompts["category"] == category].dropna().to_numpy()
        spread = np.linspace(-0.16, 0.16, len(values)) if len(values) > 1 else np.zeros(len(values))
        mark = marks[category]
        dots: dict[str, Any] = {"s": 16, "color": mark.color, "marker": mark.marker, "alpha": 0.85, "linewidths": 0}
        axes.scatter(values, place + spread, zorder=2, rasterized=len(result.prompts) > MARKS_AS_SHAPES, **dots)
        row = means.loc[category]
        axes.hlines(place, row["low"], row["high"], color=INK, linewidth=2, zorder=3)
        axes.plot(row["value"], place, "|", color=INK, markersize=13, markeredgewidth=2.2, zorder=3)
    if measure == result.at("speedup"):
        axes.axvline(1, color=INK, linewidth=0.8, linestyle="--")
    axes.set_xlabel(wrapped(label(measure), 28))
