"""Thresholds and context health: what is flagged, how the score is spread, and what it owes to length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, ScalarFormatter

from specstudy.analysis.join import Tables
from specstudy.analysis.measures import CONTEXT_MEASURES, label, phrase
from specstudy.analysis.sinks.thresholds import FLAGGED_CONTENT_ALLOWED, RECOMMENDED, SWEPT_MEASURES
from specstudy.analysis.study import AnalysisResult
from specstudy.records import HealthThreshold, SinkThreshold
from specstudy.report.narrative.sinks import MEASURE_WORDS
from specstudy.report.style import (
    BLUE,
    DARK,
    GREY,
    INK,
    LIGHT,
    MARKS_AS_SHAPES,
    MUTED,
    ORANGE,
    VERMILLION,
    new_figure,
    number,
    percent,
    wrapped,
)


def thresholds(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Flagged shares and the distribution of context health against the threshold, for each z-score."""
    sinks = result.sinks
    measures = [m for m in SWEPT_MEASURES if any(r.measure == m and r.n_content for r in sinks.sink_thresholds)]
    if not measures:
        return None
    figure = new_figure(1.2 + 3.2 * len(measures), 5.6)
    panels = figure.subplots(2, len(measures), sharex=True, sharey="row", squeeze=False)
    for (flags, health), measure in zip(panels.T, measures, strict=True):
        _flagged(flags, [r for r in sinks.sink_thresholds if r.measure == measure])
        chosen = sinks.answer(RECOMMENDED, measure)
        for axes in (flags, health):
            axes.axvline(result.settings.sink_threshold, color=MUTED, linewidth=1, linestyle=":")
            if chosen.estimate is not None:
                axes.axvline(chosen.estimate, color=INK, linewidth=1.2, linestyle="--")
        _spread_of_health(health, [r for r in sinks.health_thresholds if r.measure == measure])
        flags.set_title(wrapped(MEASURE_WORDS[measure].capitalize(), 40))
        health.set_xlabel("sink threshold (z-score)")
    drawn = [share for r in sinks.sink_thresholds for share in (r.share_structural, r.share_content) if share]
    panels[0, 0].set_ylim(bottom=50 * min(drawn, default=FLAGGED_CONTENT_ALLOWED))
    panels[0, 0].set_ylabel("positions flagged (%)")
    panels[1, 0].set_ylabel("context health")
    n, coverage = int(sinks.positions["prompt"].nunique()), percent(result.settings.confidence)
    note = f"n = {n} prompts; bands above: {coverage} intervals over prompts, below: quartiles of prompts"
    figure.suptitle(note, x=0.01, ha="left", fontsize=9.5)
    panels[0, -1].legend(loc="upper right", fontsize=8)
    panels[1, -1].legend(loc="lower right", fontsize=8)
    return figure


# Where an interval that reaches none ends on a logarithmic axis (%).
_LEAST_SHARE = 1e-4


def _flagged(axes: Axes, rows: Sequence[SinkThreshold]) -> None:
    x = [row.threshold for row in rows]
    for kind, color, marker in (("structural", BLUE, "o"), ("content", VERMILLION, "s")):
        cells = [[getattr(row, f"share_{kind}{end}") for end in ("", "_ci_low", "_ci_high")] for row in rows]
        # A share of none has no place on a logarithmic axis.
        shares = 100 * np.array(cells, dtype=np.float64)
        shares[shares[:, 0] == 0] = np.nan
        shares[:, 1] = np.where(shares[:, 1] == 0, _LEAST_SHARE, shares[:, 1])
        axes.plot(x, shares[:, 0], color=color, marker=marker, markersize=4, linewidth=1.4, label=kind)
        axes.fill_between(x, shares[:, 1], shares[:, 2], color=color, alpha=0.2, linewidth=0)
    axes.axhline(100 * FLAGGED_CONTENT_ALLOWED, color=INK, linewidth=0.8)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _spread_of_health(axes: Axes, rows: Sequence[HealthThreshold]) -> None:
    def column(name: str) -> np.ndarray:
        return np.array([getattr(row, name) for row in rows], dtype=np.float64)

    x = column("threshold")
    axes.fill_between(
        x, column("lower_quartile"), column("upper_quartile"), color=BLUE, alpha=0.25, linewidth=0, label="quartiles"
    )
    axes.plot(x, column("median"), color=BLUE, linewidth=1.8, label="median")
    axes.plot(x, column("minimum"), color=GREY, linewidth=1.2, linestyle="--", label="smallest")
    axes.plot(x, column("largest_with_a_sink"), "v", color=ORANGE, markersize=5, label="largest with a sink")
    axes.set_ylim(-0.3, 10.5)


def soft_health_by_length(result: AnalysisResult, tables: Tables) -> Figure | None:
    """The soft score of each prompt against its scored positions, and what their places alone would give."""
    scores = result.sinks.soft_by_length
    if scores.empty:
        return None
    figure = new_figure(6.4, 3.8)
    axes = figure.subplots()
    expected, coverage = scores.groupby("n_positions").mean(), percent(result.settings.confidence)
    axes.fill_between(expected.index, expected["low"], expected["high"], color=GREY, alpha=0.25, linewidth=0)
    by_place = f"attention drawn by place: mean and {coverage} range"
    axes.plot(expected.index, expected["expected"], color=GREY, linewidth=1.8, label=by_place)
    dots: dict[str, Any] = {"color": BLUE, "markersize": 5, "alpha": 0.75, "label": f"prompts (n = {len(scores)})"}
    dots["rasterized"] = len(scores) > MARKS_AS_SHAPES
    axes.plot(scores["n_positions"], scores["context_health_soft"], "o", **dots)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(0, 10)
    axes.set_xlabel("content positions before the observation window")
    axes.set_ylabel(label("context_health_soft"))
    axes.legend(loc="lower left", fontsize=8)
    return figure


def context_matrix(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Spearman of every pair of context measures: below the diagonal as it is, above with length held constant."""
    rows = result.sinks.context_correlations
    if not any(row.estimate is not None for row in rows):
        return None
    places = {name: i for i, name in enumerate(CONTEXT_MEASURES)}
    values = np.full((len(places), len(places)), np.nan)
    for row in rows:
        i, j = sorted((places[row.x], places[row.y]))
        cell = (j, i) if row.held_constant == "nothing" else (i, j)
        values[cell] = np.nan if row.estimate is None else row.estimate
    figure = new_figure(8.4, 5.2)
    axes = figure.subplots()
    image = axes.imshow(values, cmap="PuOr_r", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    for (i, j), value in np.ndenumerate(values):
        if i != j:
            color = LIGHT if value < -0.4 or value > 0.7 else DARK if np.isfinite(value) else MUTED
            axes.text(j, i, number(value), ha="center", va="center", fontsize=8, color=color)
    names = [wrapped(phrase(name), 20) for name in CONTEXT_MEASURES]
    axes.set_xticks(range(len(names)), names, fontsize=7.5, rotation=30, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names, fontsize=7.5)
    axes.grid(visible=False)
    n = max(row.n for row in rows)
    axes.set_title(f"n = {n} prompts; below the diagonal: as it is, above: prompt length held constant")
    figure.colorbar(image, ax=axes, label="Spearman correlation over prompts")
    return figure
