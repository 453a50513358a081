"""Estimates with their intervals as marks on axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from specstudy.records import ConditionDifference, ConditionMeasure, RetentionCost


def draw_estimates(
    axes: Axes,
    places: Sequence[float],
    rows: Sequence[ConditionMeasure | ConditionDifference | RetentionCost],
    label: str,
    look: tuple[str, str],
    sideways: bool = False,
) -> None:
    """A line of estimates over `places`, or dots along the y axis if `sideways`; `look` is colour and marker.

    What is null is not drawn, and an estimate without an interval is a mark alone.
    """
    color, marker = look
    known = [(place, row) for place, row in zip(places, rows, strict=True) if row.estimate is not None]
    at = [place for place, _ in known]
    value, low, high = (
        np.array([getattr(row, end) for _, row in known], dtype=np.float64) for end in ("estimate", "ci_low", "ci_high")
    )
    if sideways:
        axes.plot(value, at, marker, color=color, markersize=5, label=label)
        axes.hlines(at, low, high, color=color, linewidth=1.6)
    else:
        axes.plot(at, value, color=color, marker=marker, markersize=5, linewidth=1.4, label=label)
        axes.vlines(at, low, high, color=color, linewidth=1.6)
