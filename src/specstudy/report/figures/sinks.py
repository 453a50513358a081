"""Attention received by the part that a token plays in the template."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specstudy.analysis.join import Tables, frame_of, numbers
from specstudy.analysis.study import AnalysisResult
from specstudy.report.style import BLUE, GREY, INK, VERMILLION, new_figure

_MEASURES = {
    "z_score": "z-score of attention\nper visible query",
    "z_window": "z-score of attention from\nthe last prompt positions",
    "z_generated": "z-score of attention from\nthe answer's tokens",
}
_DOTS_A_ROLE = 250


def sinks_by_role(result: AnalysisResult, tables: Tables) -> Figure | None:
    """z-scores by structural role as boxes (quartiles, 5 to 95 %) over dots, with the threshold."""
    tokens = _with_role(tables)
    measures = [m for m in _MEASURES if m in tokens and np.isfinite(tokens[m]).any()]
    if not measures:
        return None
    roles = _in_order(tokens)
    figure = new_figure(2.2 + 2.5 * len(measures), 1.2 + 0.36 * len(roles))
    panels = figure.subplots(1, len(measures), sharey=True, sharex=True, squeeze=False)[0]
    for axes, measure in zip(panels, measures, strict=True):
        _boxes(axes, tokens, measure, roles)
        axes.axvline(result.settings.sink_threshold, color=VERMILLION, linewidth=1.2, linestyle="--")
        axes.set_xlabel(_MEASURES[measure])
    sizes = tokens["part"].value_counts()
    panels[0].set_yticks(range(len(roles)), [f"{role} (n = {sizes[role]})" for role in roles])
    panels[0].invert_yaxis()
    panels[-1].set_title(f"dashed: sink threshold {result.settings.sink_threshold:g}", loc="right", color=VERMILLION)
    return figure


def _with_role(tables: Tables) -> pd.DataFrame:
    tokens = frame_of(tables, "prefill_tokens")
    part = tokens["structural_role"].astype(object).where(tokens["structural_role"].notna(), "content")
    part = part.str.replace("_", " ").str.replace("+", " +").where(tokens["position"] != 0, "position 0")
    frame = pd.DataFrame(
        {
            "prompt_id": tokens["prompt_id"].astype(object),
            "position": tokens["position"],
            "part": part,
            "z_score": numbers(tokens["z_score"]),
            "z_window": numbers(tokens["z_window"]),
        }
    )
    attended = frame_of(tables, "decode_attention")
    if attended.empty:
        return frame
    attended = attended.assign(
        z_generated=numbers(attended["z_generated"]), prompt_id=attended["prompt_id"].astype(object)
    )
    means = attended.groupby(["prompt_id", "position"])["z_generated"].mean()
    return frame.join(means, on=["prompt_id", "position"])


def _in_order(tokens: pd.DataFrame) -> list[str]:
    """Position 0 first, content last, template parts between in the order in which they appear in prompts."""
    inner = tokens[~tokens["part"].isin(["position 0", "content"])].groupby("part")["position"].median().sort_values()
    ends = [part for part in ("position 0", "content") if (tokens["part"] == part).any()]
    return [*ends[:1], *inner.index, *ends[1:]]


def _boxes(axes: Axes, tokens: pd.DataFrame, measure: str, roles: list[str]) -> None:
    rng = np.random.default_rng(0)
    groups = [tokens.loc[tokens["part"] == role, measure].dropna().to_numpy() for role in roles]
    for place, values in enumerate(groups):
        shown = values if len(values) <= _DOTS_A_ROLE else rng.choice(values, _DOTS_A_ROLE, replace=False)
        color = GREY if roles[place] == "content" else BLUE
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
