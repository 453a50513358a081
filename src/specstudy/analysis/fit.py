"""A straight line through prompts, with the band in which it lies from sample to sample."""

from __future__ import annotations

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings, Floats, estimate, resampled

GRID_POINTS = 60


def fitted_line(x: Floats, y: Floats, settings: AnalysisSettings) -> pd.DataFrame:
    """Least-squares line with its pointwise bootstrap band: frame x, value, low, high over the range of x.

    Empty under 3 prompts or where x is constant. The band is made as every interval over prompts is.
    """
    kept = np.isfinite(x) & np.isfinite(y)
    x, y = x[kept], y[kept]
    if len(x) < 3 or np.ptp(x) == 0:
        return pd.DataFrame(columns=["x", "value", "low", "high"], dtype=np.float64)
    grid = np.linspace(x.min(), x.max(), GRID_POINTS)
    n = len(x)
    weights = (np.ones((1, n)), settings.counts(n), np.ones((n, n)) - np.eye(n))
    (line,), samples, jackknife = (_lines(x, y, drawn, grid) for drawn in weights)
    places = zip(line.tolist(), samples.T, jackknife.T, strict=True)
    band = [estimate(n, resampled(*place), settings.confidence).columns("value", "") for place in places]
    return pd.DataFrame(band, dtype=np.float64).assign(x=grid)


def _lines(x: Floats, y: Floats, weights: Floats, grid: Floats) -> Floats:
    """The line's value at each grid point under each row of weights: (samples, grid); NaN where x does not vary."""
    total = weights.sum(axis=1)
    mean_x, mean_y = weights @ x / total, weights @ y / total
    spread = weights @ x**2 / total - mean_x**2
    slope = np.where(spread > 1e-12 * np.ptp(x) ** 2, weights @ (x * y) / total - mean_x * mean_y, np.nan)
    slope = slope / np.where(spread > 0, spread, 1.0)
    lines: Floats = mean_y[:, None] + slope[:, None] * (grid - mean_x[:, None])
    return lines
