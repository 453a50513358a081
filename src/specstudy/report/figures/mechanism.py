"""Whether a predicted probability of acceptance is what happens."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from specstudy.analysis.join import Tables
from specstudy.analysis.measures import label
from specstudy.analysis.study import AnalysisResult
from specstudy.report.style import BLUE, GREEN, MUTED, ORANGE, PINK, VERMILLION, interval, new_figure, number

_LOOKS = {
    "draft_entropy": (BLUE, "o"),
    "draft_top_prob": (GREEN, "s"),
    "draft_top_margin": (ORANGE, "^"),
    "drafted_prob": (PINK, "D"),
    "entropy_bound": (VERMILLION, "v"),
}


def calibration(result: AnalysisResult, tables: Tables) -> Figure | None:
    """The reliability diagram: observed against predicted acceptance in tenths of the tested tokens."""
    rows = pd.DataFrame(result.mechanism.calibration)
    if rows.empty:
        return None
    figure = new_figure(6.4, 5.2)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle="--", label="perfectly calibrated")
    for name, points in rows.groupby("predictor", sort=False):
        color, marker = _LOOKS[str(name)]
        words = f"{label(str(name))} (n = {points['n_tokens'].sum()} tokens)"
        axes.plot(points["predicted"], points["accepted"], color=color, marker=marker, markersize=5, linewidth=1.2)
        axes.lines[-1].set_label(words)
        axes.vlines(points["predicted"], points["ci_low"], points["ci_high"], color=color, linewidth=1.2)
    axes.set(xlabel="predicted probability of acceptance", ylabel="share of tested tokens accepted")
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    score = result.mechanism.scores["draft_entropy", "calibration_error", ""]
    if score.value is not None:
        bounds = interval(score.low, score.high, 3)
        axes.set_title(f"Calibration error of draft entropy: {number(score.value, 3)} {bounds}")
    figure.legend(loc="outside lower center", ncols=2)
    return figure
