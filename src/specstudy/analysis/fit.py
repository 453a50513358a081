"""A straight line through prompts: its slope, and the band in which it lies from sample to sample."""

from __future__ import annotations

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import (
    AnalysisSettings,
    Codes,
    Estimate,
    Floats,
    drawn_together,
    estimate,
    resampled,
    too_few,
)
from specstudy.analysis.correlation import why_constant

GRID_POINTS = 60


def fitted_line(x: Floats, y: Floats, settings: AnalysisSettings, groups: Codes | None = None) -> pd.DataFrame:
    """Least-squares line with its pointwise bootstrap band: frame x, value, low, high over the range of x.

    Empty under 3 prompts or where x is constant. The band is made as every interval over prompts is; `groups` int
    (prompts,): prompts of one group are drawn together.
    """
    kept = np.isfinite(x) & np.isfinite(y)
    x, y, (codes, n_groups) = x[kept], y[kept], drawn_together(groups, kept)
    if too_few(n_groups) or np.ptp(x) == 0:
        return pd.DataFrame(columns=["x", "value", "low", "high"], dtype=np.float64)
    grid = np.linspace(x.min(), x.max(), GRID_POINTS)
    (line,), samples, jackknife = _resampled_lines(x, y, grid, codes, settings)
    places = zip(line.tolist(), samples.T, jackknife.T, strict=True)
    band = [estimate(len(x), resampled(*place), settings.confidence).columns("value", "") for place in places]
    return pd.DataFrame(band, dtype=np.float64).assign(x=grid)


def slope(x: Floats, y: Floats, settings: AnalysisSettings, groups: Codes | None = None) -> Estimate:
    """Slope of the least-squares line of y on x over prompts, one row each (NaN left out), with its interval.

    `groups` int (prompts,): prompts of one group are drawn together.
    """
    kept = np.isfinite(x) & np.isfinite(y)
    x, y, (codes, n_groups) = x[kept], y[kept], drawn_together(groups, kept)
    if reason := too_few(n_groups):
        return Estimate(len(x), null_reason=reason)
    if reason := why_constant(x):
        return Estimate(len(x), null_reason=f"x {reason}")
    rises = [np.diff(lines, axis=1)[:, 0] for lines in _resampled_lines(x, y, np.array([0.0, 1.0]), codes, settings)]
    (value,), samples, jackknife = rises
    return estimate(len(x), resampled(float(value), samples, jackknife), settings.confidence)


def _resampled_lines(
    x: Floats, y: Floats, grid: Floats, codes: Codes, settings: AnalysisSettings
) -> tuple[Floats, Floats, Floats]:
    """The line at each grid point: of all prompts (1, grid), in each sample (samples, grid), without each group, of
    which `codes` (prompts,) are the numbers (groups, grid)."""
    n = int(codes.max()) + 1
    weights = (np.ones((1, len(x))), settings.counts(n)[:, codes], (np.ones((n, n)) - np.eye(n))[:, codes])
    whole, samples, jackknife = (_lines(x, y, drawn, grid) for drawn in weights)
    return whole, samples, jackknife


def _lines(x: Floats, y: Floats, weights: Floats, grid: Floats) -> Floats:
    """The line's value at each grid point under each row of weights: (samples, grid); NaN where x does not vary."""
    total = weights.sum(axis=1)
    mean_x, mean_y = weights @ x / total, weights @ y / total
    spread = weights @ x**2 / total - mean_x**2
    slope = np.where(spread > 1e-12 * np.ptp(x) ** 2, weights @ (x * y) / total - mean_x * mean_y, np.nan)
    slope = slope / np.where(spread > 0, spread, 1.0)
    lines: Floats = mean_y[:, None] + slope[:, None] * (grid - mean_x[:, None])
    return lines
