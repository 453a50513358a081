"""Means and ratios with their intervals, and the frames built from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from specstudy.analysis.bootstrap import AnalysisSettings, Estimate, Floats, estimate, resampled, resampled_totals


def mean(values: Floats, settings: AnalysisSettings, reference: float = 0.0) -> Estimate:
    """Mean over prompts, one value each (NaN left out), with its interval; p is the t-test against `reference`."""
    values = values[np.isfinite(values)]
    n = len(values)
    if n < 3:
        return Estimate(n, value=float(values.mean()) if n else None, null_reason=f"{n} prompts; an interval needs 3")
    value = float(values.mean())
    if np.ptp(values) <= 1e-12 * max(1.0, abs(value)):
        return Estimate(n, value, null_reason=f"all {n} prompts hold the same value")
    sampled = resampled(value, settings.counts(n) @ values / n, -values / (n - 1))
    return estimate(n, sampled, settings.confidence, float(stats.ttest_1samp(values, reference).pvalue))


def difference(a: Floats, b: Floats, settings: AnalysisSettings, reference: float = 0.0) -> Estimate:
    """Mean of `a` minus mean of `b` over two groups of prompts, resampled apart; p is Welch's t-test of `reference`."""
    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    n = len(a) + len(b)
    if min(len(a), len(b)) < 3:
        return Estimate(n, null_reason=f"groups of {len(a)} and {len(b)} prompts; 3 are needed in each")
    if max(np.ptp(a), np.ptp(b)) <= 1e-12:
        return Estimate(n, null_reason="both groups are constant")
    value = float(a.mean() - b.mean())
    # Two groups of equal size must not share their draws, or their errors would cancel.
    samples = settings.counts(len(a)) @ a / len(a) - settings.counts(len(b))[::-1] @ b / len(b)
    jackknife = np.concatenate([-a / (len(a) - 1), b / (len(b) - 1)])
    p_value = float(stats.ttest_ind(a - reference, b, equal_var=False).pvalue)
    sampled = resampled(value, samples, jackknife, np.repeat([0, 1], [len(a), len(b)]))
    return estimate(n, sampled, settings.confidence, p_value)


def ratio(numerators: Floats, denominators: Floats, settings: AnalysisSettings) -> Estimate:
    """Sum of numerators over sum of denominators, each summed within prompts: (prompts,) -> estimate over prompts.

    `n` is the sum of the denominators (rows), not the number of prompts. Prompts without rows are drawn like others.
    """
    n, n_held = round(float(denominators.sum())), int((denominators > 0).sum())
    if not n_held:
        return Estimate(0, null_reason="no rows")
    value = float(numerators.sum() / denominators.sum())
    if n_held < 3:
        return Estimate(n, value, null_reason=f"{n_held} prompts; an interval needs 3")
    sampled = resampled_totals(np.column_stack([numerators, denominators]), quotient, settings)
    return estimate(n, sampled, settings.confidence, p_value=None)


def quotient(sums: Floats) -> Floats:
    """Numerator over denominator: sums (samples, 2) -> (samples,); NaN where the denominator is 0."""
    numerators, denominators = sums.T
    return np.where(denominators > 0, numerators, np.nan) / np.where(denominators > 0, denominators, 1.0)


def row_mean(values: Floats, prompts: pd.Series, settings: AnalysisSettings) -> Estimate:
    """Mean over rows that are nested in prompts, with an interval over prompts.

    A categorical `prompts` may hold prompts without rows here; they are part of what is resampled.
    """
    grouping = pd.Categorical(prompts)
    kept, n_prompts = np.isfinite(values), len(grouping.categories)
    sums, sizes = (
        np.bincount(grouping.codes[kept], weights, n_prompts).astype(np.float64) for weights in (values[kept], None)
    )
    return ratio(sums, sizes, settings)


def estimate_frame(rows: Iterable[tuple[Mapping[str, Any], Estimate]], keys: tuple[str, ...]) -> pd.DataFrame:
    """Estimates as a frame: the key columns, then n, value, low, high, null_reason (NaN where there is no value)."""
    columns = [*keys, "n", "value", "low", "high", "null_reason"]
    frame = pd.DataFrame(
        [
            {**row, "n": e.n, "value": e.value, "low": e.low, "high": e.high, "null_reason": e.null_reason}
            for row, e in rows
        ],
        columns=columns,
    )
    return frame.astype({"n": np.int64, "value": np.float64, "low": np.float64, "high": np.float64})


def means_by_category(prompts: pd.DataFrame, measures: Iterable[str], settings: AnalysisSettings) -> pd.DataFrame:
    """Mean of each measure in each category and in "all": category, measure, n, value, low, high, null_reason."""
    groups = [("all", prompts), *prompts.groupby("category", sort=True)]
    return estimate_frame(
        (
            ({"category": category, "measure": measure}, mean(group[measure].to_numpy(), settings))
            for category, group in groups
            for measure in measures
        ),
        ("category", "measure"),
    )
