"""Versions of prompts against their controls: paired differences, prompt by prompt, and imposed entropy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specstudy.analysis.interventions import Interventions
from specstudy.analysis.join import Tables
from specstudy.analysis.links import control_kinds
from specstudy.analysis.means import mean, numbered
from specstudy.analysis.measures import label
from specstudy.analysis.study import AnalysisResult
from specstudy.analysis.version_effects import PER_DOSE
from specstudy.records import VersionEffect
from specstudy.report.narrative.interventions import kind_words
from specstudy.report.style import (
    BLUE,
    GREY,
    INK,
    MUTED,
    VERMILLION,
    bars_note,
    category_marks,
    new_figure,
    wrapped,
)

_IMPOSED = "mean_sampling_entropy_bits"
_ACCEPTANCE = "alpha_expected"
_PALEST = 0.45
_LEGEND_INCHES = 1.3


def version_effects(result: AnalysisResult, tables: Tables) -> Figure | None:
    """A forest of paired differences, a row a kind and dose, beside what the control itself moved; None without any."""
    told = result.interventions
    measures = _shown_measures(told)
    rows = _shown_rows(told)
    if not measures or not rows:
        return None
    figure = new_figure(3.4 + 2.5 * len(measures), 1.6 + 0.3 * len(rows))
    panels = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    for axes, measure in zip(panels, measures, strict=True):
        axes.axvline(0, color=INK, linewidth=0.9, linestyle="--")
        for place, (kind, dose, alpha) in enumerate(rows):
            row = told.effect(kind, dose, measure)
            if row is not None:
                _draw_effect(axes, place, row, alpha)
        axes.set_xlabel(wrapped(label(measure), 30))
    panels[0].set_yticks(range(len(rows)), [wrapped(kind_words(kind, dose), 34) for kind, dose, _ in rows], fontsize=8)
    panels[0].set_ylim(len(rows) - 0.4, -0.6)
    n = max(row.n for row in told.effects if row.measure in measures)
    bars = bars_note(result.settings.confidence)
    figure.suptitle(f"version minus control; n = {n} prompts; {bars}", x=0.01, ha="left", fontsize=9.5)
    with_controls = any(row.control_difference is not None for row in told.effects if row.measure in measures)
    figure.legend(*_legend(panels[0], with_controls), loc="outside lower center", ncols=2)
    return figure


def _shown_measures(told: Interventions) -> list[str]:
    """Attention, entropy and acceptance, as far as they were measured; entropy as imposed where it was imposed."""
    entropy = _IMPOSED if told.versions["temperature"].notna().any() else "mean_entropy_bits"
    wanted = ("context_health_soft", entropy, _ACCEPTANCE)
    return [name for name in wanted if any(r.measure == name and r.difference is not None for r in told.effects)]


def _shown_rows(told: Interventions) -> list[tuple[str, int, float]]:
    """(kind, dose, opacity) of every kind and dose; the change per dose of kinds that have doses is left out."""
    doses: dict[str, list[int]] = {}
    for row in told.effects:
        listed = doses.setdefault(row.kind, [])
        if row.dose not in listed:
            listed.append(row.dose)
    rows = []
    for kind, listed in doses.items():
        shown = [dose for dose in listed if dose != PER_DOSE] or listed
        most = max(1, *map(abs, shown))
        rows += [(kind, dose, float(np.interp(abs(dose), [0, most], [_PALEST, 1.0]))) for dose in shown if dose]
        rows += [(kind, 0, 1.0)] if shown == [0] else []
    return rows


def _draw_effect(axes: Axes, place: int, row: VersionEffect, opacity: float) -> None:
    if row.control_difference is not None:
        axes.plot(row.control_difference, place + 0.2, "o", color=MUTED, markerfacecolor="none", markersize=4)
        if row.control_ci_low is not None and row.control_ci_high is not None:
            axes.hlines(place + 0.2, row.control_ci_low, row.control_ci_high, color=GREY, linewidth=1.0)
    if row.difference is not None:
        axes.plot(row.difference, place - 0.12, "o", color=BLUE, alpha=opacity, markersize=5)
        if row.ci_low is not None and row.ci_high is not None:
            axes.hlines(place - 0.12, row.ci_low, row.ci_high, color=BLUE, alpha=opacity, linewidth=1.8)


def _legend(axes: Axes, with_controls: bool) -> tuple[list[Artist], list[str]]:
    (own,) = axes.plot([], [], "o", color=BLUE, markersize=5)
    if not with_controls:
        return [own], ["version minus its control"]
    (control,) = axes.plot([], [], "o", color=MUTED, markerfacecolor="none", markersize=4)
    return [own, control], ["version minus its control", "the control minus its own control"]


def version_pairs(result: AnalysisResult, tables: Tables) -> Figure | None:
    """A line an original from control to version: columns kinds at their largest dose, rows entropy and acceptance."""
    told = result.interventions
    versions, measures = told.versions, _shown_measures(told)
    controls = control_kinds(versions)
    kinds = [kind for kind in versions["kind"].unique() if kind not in controls]
    if not kinds or not measures:
        return None
    width = 1.2 + 1.75 * len(kinds)
    figure = new_figure(width, 0.9 + 1.9 * len(measures))
    grid = figure.subplots(len(measures), len(kinds), sharey="row", squeeze=False)
    marks = category_marks(versions["category"])
    for column, kind in enumerate(kinds):
        rows = versions[versions["kind"] == kind]
        rows = rows[(rows["dose"] == rows["dose"].max()).to_numpy(dtype=bool)]
        for line, measure in enumerate(measures):
            axes = grid[line, column]
            ends = np.column_stack([versions[measure].reindex(rows["control_id"]), rows[measure]]).astype(np.float64)
            for category, pair in zip(rows["category"], ends, strict=True):
                axes.plot([0, 1], pair, color=marks[category].color, linewidth=0.7, alpha=0.55)
            known = ends[np.isfinite(ends).all(axis=1)]
            if len(known):
                axes.plot([0, 1], known.mean(axis=0), color=INK, linewidth=2.4, marker="o", markersize=4)
            axes.set(xticks=[0, 1], xticklabels=["control", "version"], xlim=(-0.25, 1.25))
            if column == 0:
                axes.set_ylabel(wrapped(label(measure), 24))
        grid[0, column].set_title(wrapped(kind_words(kind, int(rows["dose"].max())), 22), fontsize=8)
    for category, mark in marks.items():
        grid[0, 0].plot([], [], color=mark.color, label=category)
    figure.legend(
        *grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=max(1, int(width / _LEGEND_INCHES))
    )
    return figure


def imposed_entropy(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Acceptance against imposed entropy, the draft following or staying; None unless temperatures were imposed."""
    versions = result.interventions.versions
    imposed = versions["temperature"].notna().to_numpy(dtype=bool)
    if not imposed.any() or versions[[_IMPOSED, _ACCEPTANCE]].isna().all().any():
        return None
    kinds = versions.loc[imposed, "kind"].unique()
    figure = new_figure(1.0 + 3.9 * len(kinds), 4.0)
    panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    panels[0].set(ylabel=label(_ACCEPTANCE), ylim=(0, 1.02))
    for axes, kind in zip(panels, kinds, strict=True):
        rows = versions[~imposed | (versions["kind"] == kind).to_numpy(dtype=bool)]
        for _, prompt in rows.groupby("original_id"):
            path = prompt.sort_values("dose")
            axes.plot(path[_IMPOSED], path[_ACCEPTANCE], color=GREY, linewidth=0.6, alpha=0.6)
        _draw_means(axes, [group for _, group in rows.groupby("dose")], result)
        axes.set_xlabel(wrapped(label(_IMPOSED), 40))
        axes.set_title(wrapped(kind_words(str(kind)), 46))
    n = versions["original_id"].nunique()
    figure.suptitle(f"n = {n} prompts; {bars_note(result.settings.confidence)}", x=0.01, ha="left", fontsize=9.5)
    return figure


def _draw_means(axes: Axes, doses: Sequence[pd.DataFrame], result: AnalysisResult) -> None:
    """The mean over prompts at each temperature, a frame each, as a line."""
    usual = result.primary.temperature if result.primary else np.nan
    at = np.array([[frame[name].mean() for name in (_IMPOSED, _ACCEPTANCE)] for frame in doses], dtype=np.float64)
    axes.plot(at[:, 0], at[:, 1], "o-", color=VERMILLION, linewidth=2)
    for (x, y), frame in zip(at.tolist(), doses, strict=True):
        accepted = mean(
            frame[_ACCEPTANCE].to_numpy(dtype=np.float64), result.settings, groups=numbered(frame["group"])[0]
        )
        if accepted.low is not None and accepted.high is not None:
            axes.vlines(x, accepted.low, accepted.high, color=VERMILLION, linewidth=1.8)
        temperature = float(frame["temperature"].fillna(usual).max())
        axes.annotate(f"{temperature:g}", (x, y), textcoords="offset points", xytext=(6, 6), color=INK)
