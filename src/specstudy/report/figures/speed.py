"""Where a round's time goes."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from specstudy.analysis.join import Tables
from specstudy.analysis.study import AnalysisResult
from specstudy.report.style import (
    BLUE,
    DARK,
    GREY,
    LIGHT,
    ORANGE,
    interval,
    new_figure,
    percent,
)

_PARTS = {"draft": ORANGE, "verify": BLUE, "overhead": GREY}


def round_time(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Median milliseconds of a round's draft, verify and overhead, one bar a condition."""
    frame = result.round_times
    if frame.empty or frame["value"].isna().all():
        return None
    conditions = list(dict.fromkeys(frame["condition"]))
    figure = new_figure(6.4, 1.3 + 0.5 * len(conditions))
    axes = figure.subplots()
    left = np.zeros(len(conditions))
    for part, color in _PARTS.items():
        rows = frame[frame["part"] == part].set_index("condition")[["value", "low", "high"]].reindex(conditions) * 1000
        values = rows["value"].to_numpy()
        axes.barh(range(len(conditions)), values, 0.6, left, color=color, label=part)
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
    axes.set_yticks(range(len(conditions)), conditions)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("median time of a round's parts (ms)")
    coverage = percent(result.settings.confidence)
    axes.set_title(f"n = {frame['n'].max()} prompts; in brackets: {coverage} intervals over them")
    figure.legend(loc="outside lower center", ncols=3)
    return figure
