"""All context measures at a glance, and how reliable each measure is."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specstudy.analysis.join import Tables, rows_of
from specstudy.analysis.measures import ANSWER_ACCEPTANCE_MEASURE, CONTEXT_MEASURES, ENTROPY_MEASURE, Key, label
from specstudy.analysis.study import AnalysisResult
from specstudy.report.narrative.overview import answers_in_words
from specstudy.report.style import BLUE, INK, MUTED, PAPER, VERMILLION, bars_note, new_figure, wrapped

_SUBSETS = {
    "all": ("all prompts", BLUE, "o", -0.14),
    "within_category_given_length": ("adjusted for category and length", VERMILLION, "D", 0.14),
}


def context_measures(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Spearman correlation of each context measure with entropy and with acceptance, as intervals."""
    targets: list[Key] = [ENTROPY_MEASURE, ANSWER_ACCEPTANCE_MEASURE]
    targets = [y for y in targets if any(pair.y == y and r.n for pair, r in result.by_pair.items())]
    if not targets:
        return None
    figure = new_figure(4.2 + 2.6 * len(targets), 4.4)
    panels = figure.subplots(1, len(targets), sharey=True, squeeze=False)[0]
    for axes, y in zip(panels, targets, strict=True):
        _forest(axes, result, y)
    panels[0].set_yticks(range(len(CONTEXT_MEASURES)), [label(x) for x in CONTEXT_MEASURES])
    panels[0].invert_yaxis()
    panels[0].set_title(f"n = {len(result.prompts)} prompts; {bars_note(result.settings.confidence)}")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2)
    return figure


def _forest(axes: Axes, result: AnalysisResult, y: Key) -> None:
    for subset, (words, color, marker, shift) in _SUBSETS.items():
        records = [result.find("prompt", subset, x, y) for x in CONTEXT_MEASURES]
        known = [(i, r) for i, r in enumerate(records) if r and r.estimate is not None]
        places = np.array([i for i, _ in known]) + shift
        estimates = np.array([r.estimate for _, r in known], dtype=np.float64)
        bounds = np.array([(r.ci_low, r.ci_high) for _, r in known], dtype=np.float64).reshape(-1, 2)
        axes.hlines(places, bounds[:, 0], bounds[:, 1], color=color, linewidth=1.6)
        axes.plot(estimates, places, marker, color=color, markersize=5, label=words)
    for i, x in enumerate(CONTEXT_MEASURES):
        record = result.find("prompt", "all", x, y)
        if record is None or record.estimate is None:
            reason = (record.null_reason if record else None) or "not measured"
            box = {"facecolor": PAPER, "edgecolor": "none", "pad": 2}
            words = wrapped(reason.removeprefix("x "), 30)
            axes.text(0, i, words, ha="center", va="center", color=MUTED, fontsize=8, bbox=box)
    axes.axvline(0, color=INK, linewidth=0.8, zorder=0)
    axes.set_xlim(-1, 1)
    axes.set_xlabel("Spearman correlation with\n" + wrapped(label(y)))


def reliability(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Reliability of the mean over a prompt's answers, of each measure that is sampled."""
    frame = result.reliability
    if frame["value"].notna().sum() == 0:
        return None
    figure = new_figure(6.4, 1.3 + 0.4 * len(frame))
    axes = figure.subplots()
    places = np.arange(len(frame))
    axes.hlines(places, frame["low"], frame["high"], color=BLUE, linewidth=2)
    axes.plot(frame["value"], places, "o", color=BLUE, markersize=6)
    for place, row in enumerate(rows_of(frame)):
        if np.isnan(row.value):
            # Wherever it ends, the reason does not push the axes together.
            reason = wrapped(str(row.null_reason), 50)
            axes.text(0.02, place, reason, va="center", color=MUTED, fontsize=8, in_layout=False)
    axes.set_yticks(
        places, [f"{wrapped(label(row.measure), 44)}\n{answers_in_words(row.answers)}" for row in rows_of(frame)]
    )
    axes.invert_yaxis()
    axes.set_xlim(0, 1.02)
    axes.set_xlabel("reliability (1: no noise)")
    axes.set_title(f"n = {frame['n'].max()} prompts; {bars_note(result.settings.confidence)}")
    return figure
