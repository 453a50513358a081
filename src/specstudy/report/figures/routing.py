"""A mixture of experts: distinct experts of windows against baselines, and bytes against the clock."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specstudy.analysis.join import Tables
from specstudy.analysis.study import AnalysisResult
from specstudy.records import RoutingCost
from specstudy.report.style import BLUE, GREEN, GREY, MUTED, ORANGE, VERMILLION, bars_note, new_figure


def distinct_experts(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Distinct experts by length of the window, mean over layers; None for a verifier without watched experts."""
    if result.routing is None or not (rows := result.routing.over_layers("decode")):
        return None
    figure = new_figure(6.4, 4.2)
    axes = figure.subplots()
    widths = [row.window for row in rows]
    axes.plot(widths, [row.uniform for row in rows], color=GREY, linestyle="--", label="uniform choice")
    axes.plot(widths, [row.independent for row in rows], color=ORANGE, marker="^", label="independent, by popularity")
    pairs = [row for row in rows if row.pairwise is not None]
    axes.plot(
        [row.window for row in pairs],
        np.array([row.pairwise for row in pairs], dtype=np.float64),
        color=GREEN,
        marker="s",
        label="pairs of tokens (maximum entropy)",
    )
    for source, words, color in (("decode", "answers", BLUE), ("verify", "full verifier passes", VERMILLION)):
        measured = result.routing.over_layers(source)
        at = [row.window for row in measured]
        axes.plot(
            at,
            np.array([row.estimate for row in measured], dtype=np.float64),
            color=color,
            marker="o",
            label=f"measured: {words}",
        )
        known = [row for row in measured if row.ci_low is not None]
        ends = np.array([[row.ci_low, row.ci_high] for row in known], dtype=np.float64).reshape(-1, 2)
        axes.vlines([row.window for row in known], ends[:, 0], ends[:, 1], color=color, linewidth=1.6)
    layers = result.routing.layers
    axes.axhline(layers.n_experts, color=MUTED, linewidth=0.8)
    n = max(row.n_prompts for row in rows)
    axes.set(
        xlabel=f"tokens of the window (gamma + 1); n = {n} prompts",
        ylabel=f"distinct experts of {layers.n_experts}, mean over layers",
        ylim=(0, layers.n_experts * 1.05),
        title=bars_note(result.settings.confidence),
    )
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def bytes_and_clock(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Target efficiency by gamma: bytes, clock and the gap; by bytes at several batch sizes. None without costs."""
    if result.routing is None or not (costs := result.routing.costs(batch=1)):
        return None
    figure = new_figure(8.4, 4.2)
    left, right = figure.subplots(1, 2, sharey=True)
    gammas = [row.gamma for row in costs]
    left.plot(gammas, [row.by_bytes for row in costs], color=BLUE, marker="o", label="by bytes, as routed")
    left.plot(
        gammas, [row.by_bytes_uniform for row in costs], color=GREY, linestyle="--", label="by bytes, uniform choice"
    )
    timed = [row for row in costs if row.estimate is not None]
    at, clock = [row.gamma for row in timed], np.array([row.estimate for row in timed], dtype=np.float64)
    left.plot(at, clock, color=VERMILLION, marker="D", label="by the clock")
    _intervals(left, [row for row in timed if row.ci_low is not None])
    left.fill_between(at, [row.by_bytes for row in timed], clock, color=VERMILLION, alpha=0.12, label="the gap")
    left.set(
        xlabel=f"gamma; n = {max(row.n for row in costs)} prompts",
        ylabel="target efficiency: 1-token step / pass",
        ylim=(0, 1.05),
        title=bars_note(result.settings.confidence),
    )
    batches = sorted({row.batch for row in result.routing.routing_costs})
    for place, batch in enumerate(batches):
        rows = result.routing.costs(batch)
        shade = 0.35 + 0.65 * place / max(1, len(batches) - 1)
        at, values = [row.gamma for row in rows], [row.by_bytes for row in rows]
        right.plot(at, values, color=BLUE, alpha=shade, label=f"by bytes, batch of {batch}")
    right.set(xlabel="gamma")
    for axes in (left, right):
        axes.set_xticks(gammas)
        axes.legend(loc="lower left", fontsize=7.5)
    return figure


def _intervals(axes: Axes, rows: Sequence[RoutingCost]) -> None:
    ends = np.array([[row.ci_low, row.ci_high] for row in rows], dtype=np.float64).reshape(-1, 2)
    axes.vlines([row.gamma for row in rows], ends[:, 0], ends[:, 1], color=VERMILLION, linewidth=1.6)
