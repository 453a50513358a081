"""z-scores by the part that a token plays in the template."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specstudy.analysis.join import Tables
from specstudy.analysis.sinks.positions import Z_MEASURES
from specstudy.analysis.sinks.roles import WHOLE_PLACE
from specstudy.analysis.study import AnalysisResult
from specstudy.report.narrative.sinks import MEASURE_WORDS, role_words
from specstudy.report.style import BLUE, GREY, INK, VERMILLION, new_figure, wrapped

_DOTS_A_ROLE = 250


def sinks_by_role(result: AnalysisResult, tables: Tables) -> Figure | None:
    """z-scores by structural role as boxes (quartiles, 5 to 95 %) over dots, with the threshold."""
    positions = result.sinks.positions
    measures = [m for m in Z_MEASURES if positions[m].notna().any()]
    if not measures:
        return None
    roles = _in_order(result)
    figure = new_figure(2.6 + 2.5 * len(measures), 1.2 + 0.34 * len(roles))
    panels = figure.subplots(1, len(measures), sharey=True, sharex=True, squeeze=False)[0]
    for axes, measure in zip(panels, measures, strict=True):
        _boxes(axes, positions, measure, list(roles))
        axes.axvline(result.settings.sink_threshold, color=VERMILLION, linewidth=1.2, linestyle="--")
        axes.set_xlabel(wrapped(f"z-score of {MEASURE_WORDS[measure]}", 28))
    sizes = positions.groupby(["place", "structural_role"]).size()
    panels[0].set_yticks(range(len(roles)), [f"{words} (n = {sizes[key]})" for key, words in roles.items()])
    panels[0].invert_yaxis()
    panels[-1].set_title(f"dashed: sink threshold {result.settings.sink_threshold:g}", loc="right", color=VERMILLION)
    return figure


def _in_order(result: AnalysisResult) -> dict[tuple[str, str], str]:
    """The parts (place and structural role) in reading order, with their words."""
    rows = [row for row in result.sinks.sink_roles if row.structural_role != WHOLE_PLACE]
    return {(row.place, row.structural_role): role_words(row) for row in rows}


def _boxes(axes: Axes, positions: pd.DataFrame, measure: str, roles: list[tuple[str, str]]) -> None:
    rng = np.random.default_rng(0)
    by_role = positions.dropna(subset=[measure]).groupby(["place", "structural_role"])[measure]
    known = {key: values.to_numpy() for key, values in by_role}
    groups = [known.get(key, np.zeros(0)) for key in roles]
    for place, values in enumerate(groups):
        shown = values if len(values) <= _DOTS_A_ROLE else rng.choice(values, _DOTS_A_ROLE, replace=False)
        color = GREY if roles[place][0] == "content" else BLUE
        spread = rng.uniform(-0.25, 0.25, len(shown))
        axes.scatter(shown, place + spread, s=5, color=color, alpha=0.35, linewidths=0, rasterized=True)
    line = {"color": INK, "linewidth": 1.1}
    axes.boxplot(
        groups,
        positions=range(len(roles)),
        orientation="horizontal",
        widths=0.55,
        whis=(5, 95),
        showfliers=False,
        manage_ticks=False,
        boxprops=line,
        whiskerprops=line,
        capprops=line,
        medianprops={"color": INK, "linewidth": 2},
    )
