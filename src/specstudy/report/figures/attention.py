"""First-token attention by layer and head, and what predicts the answer's attention."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from specstudy import formulas
from specstudy.analysis.join import Tables
from specstudy.analysis.sinks.prediction import NOTHING, POSITION, RECEIVED, WINDOW, Case
from specstudy.analysis.study import AnalysisResult
from specstudy.report.narrative.sinks import POSITION_WORDS, PREDICTOR_WORDS
from specstudy.report.style import BLUE, INK, LIGHT, VERMILLION, bars_note, new_figure, wrapped


def first_token_attention(result: AnalysisResult, tables: Tables) -> Figure | None:
    """A cell a head: its attention to position 0, mean over queries and prompts; those over 0.3 are outlined."""
    cells = result.sinks.head_map
    if cells.empty:
        return None
    values = cells.to_numpy()
    n_layers, n_heads = values.shape
    figure = new_figure(min(9.0, 2.2 + 0.26 * n_layers), min(6.4, 1.3 + 0.26 * n_heads))
    axes = figure.subplots()
    image = axes.imshow(values.T, cmap="viridis", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    layers, heads = np.nonzero(values > formulas.SINK_RATE_ATTENTION)
    axes.plot(layers, heads, "o", color=LIGHT, markersize=2.5, markeredgewidth=0)
    axes.set_xlabel("layer")
    axes.set_ylabel("head")
    axes.grid(visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    n_all, n_prompts = np.isfinite(values).sum(), len(result.prompts)
    dots = f"dot: over {formulas.SINK_RATE_ATTENTION:g} ({len(layers)} of {n_all} heads)"
    axes.set_title(f"{dots}\nn = {n_prompts} prompts")
    figure.colorbar(image, ax=axes, label="mean attention\nto position 0")
    return figure


_ROWS = tuple(
    (predictor, positions)
    for positions in ("content", "content_before_window", "all_before_window")
    for predictor in (RECEIVED, WINDOW, POSITION)
    if (predictor, positions) != (WINDOW, "content")
)
_GROUPS = list(dict.fromkeys(positions for _, positions in _ROWS))
_HELD = {NOTHING: ("as it is", BLUE, "o", -0.16), POSITION: ("position held constant", VERMILLION, "D", 0.16)}


def attention_predicted(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Rank correlation within each prompt with the attention from the answer's tokens: prompts as dots, means."""
    if not any(row.estimate is not None for row in result.sinks.sink_predictions):
        return None
    figure = new_figure(7.2, 4.6)
    axes = figure.subplots()
    places = {key: i + _GROUPS.index(key[1]) for i, key in enumerate(_ROWS)}
    for held in _HELD:
        _coefficients(axes, result, held, places)
    for positions in _GROUPS:
        top = min(place for key, place in places.items() if key[1] == positions)
        axes.text(-0.98, top - 0.72, POSITION_WORDS[positions], color=INK, fontweight="bold", fontsize=8.5, va="center")
    axes.set_yticks(list(places.values()), [wrapped(PREDICTOR_WORDS[predictor], 28) for predictor, _ in places])
    axes.set_ylim(max(places.values()) + 0.6, -1.1)
    axes.set_xlim(-1, 1)
    axes.axvline(0, color=INK, linewidth=0.8, zorder=0)
    axes.set_xlabel(wrapped("rank correlation within a prompt with the attention from the answer's tokens", 60))
    n = max(row.n_prompts for row in result.sinks.sink_predictions)
    axes.set_title(f"n = {n} prompts or fewer; {bars_note(result.settings.confidence)}")
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2)
    return figure


def _coefficients(axes: Axes, result: AnalysisResult, held: str, places: dict[tuple[str, str], int]) -> None:
    words, color, marker, shift = _HELD[held]
    by_case = result.sinks.within_prompts.groupby(list(Case._fields))["value"]
    rng = np.random.default_rng(0)
    drawn_before = False
    for row in result.sinks.sink_predictions:
        place = places.get((row.predictor, row.positions))
        if place is None or row.held_constant != held or row.estimate is None:
            continue
        dots = by_case.get_group((row.predictor, row.positions, held)).to_numpy()
        spread = place + shift + rng.uniform(-0.1, 0.1, len(dots))
        axes.scatter(dots, spread, s=7, color=color, alpha=0.3, linewidths=0, rasterized=True)
        axes.plot(row.estimate, place + shift, marker, color=color, markersize=6, label=None if drawn_before else words)
        if row.ci_low is not None and row.ci_high is not None:
            axes.hlines(place + shift, row.ci_low, row.ci_high, color=color, linewidth=2)
        drawn_before = True
