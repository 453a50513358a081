"""Lowered keys: what became of entropy and acceptance against the attention that was really taken away."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specstudy.analysis.join import Tables
from specstudy.analysis.means import mean
from specstudy.analysis.measures import label
from specstudy.analysis.study import AnalysisResult
from specstudy.analysis.version_effects import differences, groups_of_originals
from specstudy.report.narrative.interventions import kind_words
from specstudy.report.style import BLUE, GREY, INK, MUTED, VERMILLION, bars_note, new_figure, wrapped

_MOVED = "mass_moved"
_WATCHED = ("mean_entropy_bits", "mean_expected_accept")
_COLOURS = {
    "content_lowered": GREY,
    "content_lowered_in_both": MUTED,
    "structural_lowered": BLUE,
    "structural_lowered_in_both": VERMILLION,
}


def lowered_sinks(result: AnalysisResult, tables: Tables) -> Figure | None:
    """A line a kind, from the unaltered version at the origin through its doses; None where no key was lowered."""
    versions = result.interventions.versions
    if versions.empty or versions[_MOVED].isna().all():
        return None
    unaltered = versions[versions["control_id"].isna().to_numpy(dtype=bool)].reset_index().set_index("original_id")
    rows = versions[versions["lowered"].notna().to_numpy(dtype=bool)]
    rows = rows.assign(base=rows["original_id"].map(unaltered["prompt_id"]))
    figure = new_figure(9.6, 4.6)
    panels = figure.subplots(1, len(_WATCHED))
    for axes, measure in zip(panels, _WATCHED, strict=True):
        axes.axhline(0, color=INK, linewidth=0.9, linestyle="--")
        for kind, of_kind in rows.groupby("kind", sort=False):
            # What the verifier writes does not depend on the draft.
            if measure == _WATCHED[1] or not of_kind["lowered_in_both"].any():
                _draw_kind(axes, str(kind), of_kind, versions, measure, result)
        axes.set_xlabel(wrapped(f"{label(_MOVED)}, mean over prompts", 44))
        axes.set_ylabel(wrapped(f"change of {label(measure)}", 34))
    n = versions["original_id"].nunique()
    told = f"version minus unaltered; n = {n} prompts; {bars_note(result.settings.confidence)}"
    figure.suptitle(told, x=0.01, ha="left", fontsize=9.5)
    figure.legend(*panels[1].get_legend_handles_labels(), loc="outside lower center", ncols=1)
    return figure


def _draw_kind(
    axes: Axes, kind: str, rows: pd.DataFrame, versions: pd.DataFrame, measure: str, result: AnalysisResult
) -> None:
    changes = differences(rows, versions[measure], rows.index, rows["base"])
    groups = groups_of_originals(rows, changes.index)
    colour, ends = _COLOURS[kind], [(0.0, 0.0)]
    for dose, of_dose in rows.groupby("dose"):
        change = mean(changes[dose].to_numpy(dtype=np.float64), result.settings, groups=groups)
        moved = float(of_dose[_MOVED].mean())
        if change.value is None:
            continue
        ends.append((moved, change.value))
        if change.low is not None and change.high is not None:
            axes.vlines(moved, change.low, change.high, color=colour, linewidth=1.6)
        by = float(of_dose["lowered_by"].iloc[0])
        axes.annotate(f"{by:g}", ends[-1], textcoords="offset points", xytext=(5, 5), color=INK)
    axes.plot(*zip(*ends, strict=True), "o-", color=colour, label=kind_words(kind))
