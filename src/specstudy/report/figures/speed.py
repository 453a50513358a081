"""Where a round's time goes, and acceptance and speedup against gamma."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specstudy.analysis.join import Tables
from specstudy.analysis.measures import ACCEPTANCE_MEASURES, THEORIES, label
from specstudy.analysis.study import AnalysisResult
from specstudy.report.style import (
    BLUE,
    DARK,
    GREY,
    INK,
    LIGHT,
    ORANGE,
    bars_note,
    interval,
    look,
    new_figure,
    percent,
)

_PARTS = {"draft": ORANGE, "verify": BLUE, "overhead": GREY}


def round_time(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Mean milliseconds of a round, split into draft, verify and overhead, one bar a setting."""
    frame = result.round_times
    if frame.empty or frame["value"].isna().all():
        return None
    settings = list(dict.fromkeys(frame["setting"]))
    figure = new_figure(6.4, 1.3 + 0.5 * len(settings))
    axes = figure.subplots()
    left = np.zeros(len(settings))
    for part, color in _PARTS.items():
        rows = frame[frame["part"] == part].set_index("setting")[["value", "low", "high"]].reindex(settings) * 1000
        values = rows["value"].to_numpy()
        axes.barh(range(len(settings)), values, 0.6, left, color=color, label=part)
        for place, (start, width) in enumerate(zip(left, values, strict=True)):
            beside = part == "overhead"  # too narrow for its label
            bounds = interval(rows["low"].iloc[place], rows["high"].iloc[place], 1)
            axes.text(
                start + width if beside else start + width / 2,
                place,
                f"{' ' * beside}{width:.1f}\n{' ' * beside}{bounds}".rstrip(),
                ha="left" if beside else "center",
                va="center",
                color=LIGHT if part == "verify" else DARK,
                fontsize=7,
            )
        left = left + np.nan_to_num(values)
    axes.set_xlim(right=1.12 * np.nanmax(left))
    axes.set_yticks(range(len(settings)), settings)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("mean time of a round (ms)")
    coverage = percent(result.settings.confidence)
    axes.set_title(f"n = {frame['n'].max()} rounds; in brackets: {coverage} intervals over prompts")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def acceptance_by_gamma(result: AnalysisResult, tables: Tables) -> Figure | None:
    """The three acceptance numbers against gamma; None unless several gammas were measured."""
    figure = _against_gamma(result, ACCEPTANCE_MEASURES)
    if figure is not None:
        figure.axes[0].set(ylabel="acceptance", ylim=(0, 1.02))
    return figure


def speedup_by_gamma(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Measured speedup and what each theory says, against gamma; None unless several gammas were measured."""
    figure = _against_gamma(result, ("speedup", *THEORIES))
    if figure is not None:
        figure.axes[0].axhline(1, color=INK, linewidth=0.9, linestyle="--")
        figure.axes[0].set_ylabel("speedup (times the verifier alone)")
    return figure


def _against_gamma(result: AnalysisResult, measures: tuple[str, ...]) -> Figure | None:
    if len(result.gammas) < 2:
        return None
    figure = new_figure(6.4, 4.6)
    axes = figure.subplots()
    for place, measure in enumerate(measures):
        _gamma_line(axes, result, measure, 0.04 * (place - (len(measures) - 1) / 2))
    axes.set_xticks([setting.gamma for setting in result.gammas])
    axes.set_xlabel("gamma (tokens proposed in a full round)")
    axes.set_title(f"n = {len(result.prompts)} prompts; {bars_note(result.settings.confidence)}")
    figure.legend(loc="outside lower center", ncols=1)
    return figure


def _gamma_line(axes: Axes, result: AnalysisResult, measure: str, shift: float) -> None:
    color, marker = look(measure)
    overall = result.by_category[result.by_category["category"] == "all"].set_index("measure")
    rows = overall.loc[[result.at(measure, setting) for setting in result.gammas]]
    gammas = [setting.gamma + shift for setting in result.gammas]
    width = 2.2 if measure == "speedup" else 1.4
    axes.plot(gammas, rows["value"], color=color, marker=marker, linewidth=width, label=label(measure))
    axes.vlines(gammas, rows["low"], rows["high"], color=color, linewidth=width)
