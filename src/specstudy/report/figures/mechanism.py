"""Whether a predicted probability of acceptance is what happens."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specstudy.analysis.join import Tables
from specstudy.analysis.measures import label
from specstudy.analysis.study import AnalysisResult
from specstudy.report.style import BLUE, MUTED, bars_note, interval, new_figure, number

_COLUMNS = 3


def calibration(result: AnalysisResult, tables: Tables) -> Figure | None:
    """The reliability diagrams: observed against predicted acceptance in tenths of the tested tokens, by predictor."""
    rows = pd.DataFrame(result.mechanism.calibration)
    if rows.empty:
        return None
    by_predictor = {str(name): points for name, points in rows.groupby("predictor", sort=False)}
    n_rows = -(-len(by_predictor) // _COLUMNS)
    figure = new_figure(7.4, 0.7 + 2.6 * n_rows)
    panels = figure.subplots(n_rows, _COLUMNS, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, (name, points) in zip(panels, by_predictor.items(), strict=False):
        _reliability_diagram(axes, points)
        score = result.mechanism.scores[name, "calibration_error", ""]
        error = "" if score.value is None else f"{number(score.value, 3)} {interval(score.low, score.high, 3)}"
        chance = number(result.mechanism.scores[name, "calibration_error_by_chance", ""].value, 3)
        axes.set_title(f"{label(name)}\ncalibration error {error}\nby chance {chance}", fontsize=8)
        axes.tick_params(labelbottom=True)
    for axes in panels[len(by_predictor) :]:
        axes.set_axis_off()
    figure.supxlabel("predicted probability of acceptance", fontsize=9)
    figure.supylabel("share of tested tokens accepted", fontsize=9)
    n = max(points["n_tokens"].sum() for points in by_predictor.values())
    figure.suptitle(f"n = {n} tested tokens; {bars_note(result.settings.confidence)}", fontsize=9.5, x=0.01, ha="left")
    return figure


def _reliability_diagram(axes: Axes, points: pd.DataFrame) -> None:
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle="--")
    axes.vlines(points["predicted"], points["ci_low"], points["ci_high"], color=BLUE, linewidth=1.2)
    axes.plot(points["predicted"], points["accepted"], color=BLUE, marker="o", markersize=4.5, linewidth=1.2)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
