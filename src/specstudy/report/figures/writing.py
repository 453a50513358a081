"""Attention while writing: its links token by token, one answer, and the heads."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from specstudy.analysis.join import Tables, frame_of, numbers
from specstudy.analysis.measures import phrase
from specstudy.analysis.study import AnalysisResult
from specstudy.analysis.writing.heads import BY_LINK, BY_MASS, MEASURES
from specstudy.analysis.writing.tokens import FATE, OUTCOMES
from specstudy.records import ATTENTION_MEASURES, AttentionHeadLink, AttentionLink
from specstudy.report.style import (
    BLUE,
    DARK,
    GREY,
    INK,
    LIGHT,
    VERMILLION,
    bars_note,
    new_figure,
    number,
    visible_token,
    wrapped,
)

_LAYERS = {"all": ("all layers", BLUE, "o", -0.15), "last_third": ("last third of the layers", VERMILLION, "D", 0.15)}
_TOKENS_SHOWN = 64
_LONGEST_TOKEN = 12


def attention_links(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Every measure with every outcome, beside what is left of it where attention is turned within the answer."""
    rows = [row for row in result.writing.attention_links if row.layers in _LAYERS and row.estimate is not None]
    outcomes = [name for name in (*OUTCOMES, FATE) if any(row.outcome == name for row in rows)]
    if not outcomes:
        return None
    figure = new_figure(2.2 + 1.85 * len(outcomes), 4.8)
    panels = figure.subplots(1, len(outcomes), sharex=True, sharey=True, squeeze=False)[0]
    for axes, outcome in zip(panels, outcomes, strict=True):
        for layers, (words, color, marker, shift) in _LAYERS.items():
            of_layers = [row for row in rows if (row.layers, row.outcome) == (layers, outcome)]
            _draw_links(axes, of_layers, words, color, marker, shift)
        axes.axvline(0, color=INK, linewidth=0.8, zorder=0)
        axes.set_title(wrapped(phrase(outcome), 22))
        axes.xaxis.set_major_locator(MaxNLocator(5))
    panels[0].set_yticks(range(len(ATTENTION_MEASURES)), [wrapped(phrase(name), 24) for name in ATTENTION_MEASURES])
    panels[0].set_ylim(len(ATTENTION_MEASURES) - 0.5, -0.5)
    n = max(row.n for row in rows)
    figure.supxlabel(
        f"partial rank correlation within answers, mean over n = {n} prompts or fewer\n"
        f"{bars_note(result.settings.confidence)}",
        fontsize="medium",
    )
    handles, names = panels[0].get_legend_handles_labels()
    drawn = dict(zip(names, handles, strict=True))
    figure.legend(drawn.values(), drawn.keys(), loc="outside upper right", ncols=len(drawn))
    return figure


def _draw_links(axes: Axes, rows: list[AttentionLink], words: str, color: str, marker: str, shift: float) -> None:
    order = [*ATTENTION_MEASURES]
    at = [order.index(row.measure) + shift for row in rows]

    def values(name: str) -> np.ndarray:
        return np.array([getattr(row, name) for row in rows], dtype=np.float64)

    axes.hlines(at, values("shifted_ci_low"), values("shifted_ci_high"), color=GREY, linewidth=4, alpha=0.6)
    axes.plot(
        values("shifted"), at, "|", color=GREY, markersize=8, markeredgewidth=2, label="null: turned within the answer"
    )
    axes.hlines(at, values("ci_low"), values("ci_high"), color=color, linewidth=1.6)
    axes.plot(values("estimate"), at, marker, color=color, markersize=5, label=words)


def writing_trace(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Entropy and sink mass along the first answer of the prompt whose correlation of the two is the median."""
    prompt_id = _median_prompt(result)
    if prompt_id is None:
        return None
    key = ["prompt_id", "repetition", "step"]
    tokens = frame_of(tables, "decode_tokens")
    tokens = tokens[(tokens["prompt_id"] == prompt_id).to_numpy() & (tokens["repetition"] == 0).to_numpy()]
    attention = frame_of(tables, "decode_attention_steps")[[*key, "sink_mass", "sink_mass_last_third"]]
    tokens = tokens.merge(attention, on=key).sort_values("step").head(_TOKENS_SHOWN)
    figure = new_figure(9.6, 4.2)
    upper, lower = figure.subplots(2, 1, sharex=True)
    upper.bar(tokens["step"], numbers(tokens["entropy_bits"]), width=0.75, color=INK)
    upper.set_ylabel("verifier entropy\n(bits)")
    for layers, (words, color, marker, _) in _LAYERS.items():
        column = "sink_mass" if layers == "all" else f"sink_mass_{layers}"
        lower.plot(tokens["step"], numbers(tokens[column]), color=color, marker=marker, markersize=3, label=words)
    lower.set_ylabel("attention to\nposition 0")
    texts = [visible_token(token)[:_LONGEST_TOKEN] for token in tokens["token"]]
    lower.set_xticks(tokens["step"], texts, rotation=90, fontsize=7)
    lower.set_xlim(-0.7, len(tokens) - 0.3)
    for axes in (upper, lower):
        axes.grid(axis="x", visible=False)
    coefficient = result.writing.by_prompt["sink_mass", "all", "entropy_bits"][prompt_id]
    upper.set_title(f"{prompt_id}: first {len(tokens)} tokens of an answer; correlation {number(coefficient)}")
    figure.legend(*lower.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _median_prompt(result: AnalysisResult) -> str | None:
    """The prompt whose correlation of sink mass and entropy is the (lower) median; None if no prompt has one."""
    ordered = result.writing.by_prompt.get(("sink_mass", "all", "entropy_bits"), pd.Series(dtype=float)).dropna()
    ordered = ordered.sort_values(kind="stable")
    return None if ordered.empty else str(ordered.index[(len(ordered) - 1) // 2])


def head_links(result: AnalysisResult, tables: Tables) -> Figure | None:
    """A cell a head and measure: its correlation with the verifier's entropy; the chosen heads are ringed."""
    rows = result.writing.attention_head_links
    if not rows:
        return None
    n_layers, n_heads = (1 + max(getattr(row, name) for row in rows) for name in ("layer", "head"))
    figure = new_figure(
        min(9.6, max(4.6, 2.4 + 0.2 * n_layers)), min(9.0, 1.6 + len(MEASURES) * (0.5 + 0.14 * n_heads))
    )
    panels = figure.subplots(len(MEASURES), 1, sharex=True)
    strongest = max((abs(row.estimate) for row in rows if row.estimate is not None), default=1.0)
    for axes, measure in zip(panels, MEASURES, strict=True):
        image = _draw_heads(axes, [row for row in rows if row.measure == measure], (n_layers, n_heads), strongest)
        axes.set_title(phrase(measure))
    panels[-1].set_xlabel("layer")
    n = max(row.n for row in rows)
    figure.colorbar(
        image, ax=panels, label=wrapped(f"partial rank correlation with verifier entropy, n = {n} prompts", 40)
    )
    return figure


def _draw_heads(axes: Axes, rows: list[AttentionHeadLink], shape: tuple[int, int], strongest: float) -> AxesImage:
    """A measure's map [layer, head], and rings around the heads that were chosen by their correlation or mass."""
    values = np.full(shape, np.nan)
    for row in rows:
        if not row.chosen_by and row.estimate is not None:
            values[row.layer, row.head] = row.estimate
    image = axes.imshow(
        values.T, cmap="RdBu_r", vmin=-strongest, vmax=strongest, aspect="auto", interpolation="nearest"
    )
    for how, marker in ((BY_LINK, "o"), (BY_MASS, "s")):
        layers, heads = ([getattr(row, name) for row in rows if row.chosen_by == how] for name in ("layer", "head"))
        for color, width in ((LIGHT, 3.0), (DARK, 1.4)):
            axes.plot(layers, heads, marker, markersize=9, fillstyle="none", color=color, markeredgewidth=width)
    axes.set_ylabel("head")
    axes.grid(visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    return image
