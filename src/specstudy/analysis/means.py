"""Means and ratios with their intervals, and the frames built from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from specstudy.analysis.bootstrap import (
    FEWEST_DRAWN,
    AnalysisSettings,
    Codes,
    Estimate,
    Floats,
    drawn_together,
    estimate,
    resampled,
    resampled_quantile,
    resampled_totals,
    too_few,
)
from specstudy.analysis.measures import Key, is_timed


def mean(values: Floats, settings: AnalysisSettings, reference: float = 0.0, groups: Codes | None = None) -> Estimate:
    """Mean over prompts, one value each (NaN left out), with its interval; p is the t-test against `reference`.

    `groups` int (prompts,): prompts of one group are drawn together; p is then that of the bootstrap.
    """
    kept = np.isfinite(values)
    values, (codes, n_groups) = values[kept], drawn_together(groups, kept)
    n = len(values)
    if reason := too_few(n_groups):
        return Estimate(n, value=float(values.mean()) if n else None, null_reason=reason)
    if n_groups < n:
        return replace(nested_mean(values, codes, n_groups, settings).against(reference), n=n)
    value = float(values.mean())
    found = estimate(n, resampled(value, settings.counts(n) @ values / n, -values / (n - 1)), settings.confidence)
    return replace(found, p_value=float(stats.ttest_1samp(values, reference).pvalue)) if found.uncertainty else found


def median(values: Floats, settings: AnalysisSettings, reference: float = 0.0, groups: Codes | None = None) -> Estimate:
    """Median over prompts, one value each (NaN left out), with its interval; p is of `reference` by the same samples.

    What a burst of something else on the machine did to one prompt cannot move it far. `groups` int (prompts,): prompts
    of one group are drawn together.
    """
    kept = np.isfinite(values)
    values, (codes, n_groups) = values[kept], drawn_together(groups, kept)
    n = len(values)
    if reason := too_few(n_groups):
        return Estimate(n, value=float(np.median(values)) if n else None, null_reason=reason)
    samples = weighted_medians(values, settings.counts(n_groups)[:, codes])
    found = estimate(n, resampled_quantile(float(np.median(values)), samples, n_groups), settings.confidence)
    return found.against(reference)


def weighted_medians(values: Floats, weights: Floats) -> Floats:
    """Median of values (n,) drawn as often as each row of weights (samples, n) says: (samples,)."""
    order = np.argsort(values)
    cumulated, half = np.cumsum(weights[:, order], axis=1), weights.sum(axis=1, keepdims=True) / 2
    lower, upper = (cumulated >= half).argmax(axis=1), (cumulated > half).argmax(axis=1)
    medians: Floats = (values[order][lower] + values[order][upper]) / 2
    return medians


def average(
    measure: Key, values: Floats, settings: AnalysisSettings, reference: float = 0.0, groups: Codes | None = None
) -> Estimate:
    """A measure over prompts: the median of one that a clock has a part in, the mean of any other."""
    return (median if is_timed(measure) else mean)(values, settings, reference, groups)


def difference(
    a: Floats,
    b: Floats,
    settings: AnalysisSettings,
    reference: float = 0.0,
    groups: tuple[Codes, Codes] | None = None,
) -> Estimate:
    """Mean of `a` minus mean of `b` over two sets of prompts, resampled apart; p is Welch's t-test of `reference`.

    `groups`: those of each set's prompts, which lie in one set each. Prompts of a group are averaged first.
    """
    n = int(np.isfinite(a).sum() + np.isfinite(b).sum())
    if groups is not None:
        a, b = _of_groups(a, groups[0]), _of_groups(b, groups[1])
    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    if min(len(a), len(b)) < FEWEST_DRAWN:
        reason = f"{len(a)} and {len(b)} independent prompts; {FEWEST_DRAWN} are needed on each side"
        return Estimate(n, null_reason=reason)
    value = float(a.mean() - b.mean())
    # Two sides of equal size must not share their draws, or their errors would cancel.
    samples = settings.counts(len(a)) @ a / len(a) - settings.counts(len(b))[::-1] @ b / len(b)
    jackknife = np.concatenate([-a / (len(a) - 1), b / (len(b) - 1)])
    found = estimate(n, resampled(value, samples, jackknife, np.repeat([0, 1], [len(a), len(b)])), settings.confidence)
    p_value = float(stats.ttest_ind(a - reference, b, equal_var=False).pvalue) if found.uncertainty else None
    return replace(found, p_value=p_value)


def _of_groups(values: Floats, groups: Codes) -> Floats:
    return np.asarray(pd.Series(values).groupby(groups).mean(), dtype=np.float64)


def ratio(numerators: Floats, denominators: Floats, settings: AnalysisSettings) -> Estimate:
    """Sum of numerators over sum of denominators, each summed within prompts: (prompts,) -> estimate over prompts.

    `n` is the sum of the denominators (rows), not the number of prompts. Prompts without rows are drawn like others.
    """
    n, n_held = round(float(denominators.sum())), int((denominators > 0).sum())
    if not n_held:
        return Estimate(0, null_reason="no rows")
    if reason := too_few(n_held):
        return Estimate(n, float(numerators.sum() / denominators.sum()), null_reason=reason)
    totals = np.column_stack([numerators, denominators])
    return estimate(n, resampled_totals(totals, lambda sums: quotient(*sums.T), settings), settings.confidence)


def quotient(numerators: Floats, denominators: Floats) -> Floats:
    """Numerators over denominators, NaN where that is 0."""
    defined = denominators > 0
    return np.where(defined, numerators, np.nan) / np.where(defined, denominators, 1.0)


def nested_mean(values: Floats, prompts: Codes, n_prompts: int, settings: AnalysisSettings) -> Estimate:
    """Mean of float64 (rows,) that are nested in prompts, with an interval over prompts; `n` counts rows, NaN left out.

    `prompts` int (rows,): 0 to n_prompts - 1. Prompts without rows here are part of what is resampled. Where all rows
    hold the same value resampling shows no spread, so there is no interval: none of 20 is not known to be none.
    """
    kept = np.isfinite(values)
    sums, sizes = (
        np.bincount(prompts[kept], weights, n_prompts).astype(np.float64) for weights in (values[kept], None)
    )
    return ratio(sums, sizes, settings)


def numbered(prompts: pd.Series) -> tuple[Codes, int]:
    """Prompts as numbers from 0, and how many there are: those of a categorical that have no rows here are counted."""
    grouping = pd.Categorical(prompts)
    return grouping.codes.astype(np.intp), len(grouping.categories)


def estimate_frame(rows: Iterable[tuple[Mapping[str, Any], Estimate]], keys: tuple[str, ...]) -> pd.DataFrame:
    """Estimates as a frame: the key columns, then n, value, low, high, null_reason (NaN where there is no value)."""
    columns = [*keys, "n", "value", "low", "high", "null_reason"]
    frame = pd.DataFrame(
        [{**row, "n": e.n, **e.columns("value", ""), "null_reason": e.null_reason} for row, e in rows],
        columns=columns,
    )
    return frame.astype({"n": np.int64, "value": np.float64, "low": np.float64, "high": np.float64})


def means_by_category(prompts: pd.DataFrame, measures: Iterable[Key], settings: AnalysisSettings) -> pd.DataFrame:
    """Average of each measure in each category and in "all": category, measure, n, value, low, high, null_reason."""
    subsets = [("all", prompts), *prompts.groupby("category", sort=True)]
    parts = [(category, rows, numbered(rows["group"])[0]) for category, rows in subsets]
    return estimate_frame(
        (
            (
                {"category": category, "measure": measure},
                average(measure, rows[measure].to_numpy(), settings, groups=groups),
            )
            for category, rows, groups in parts
            for measure in measures
        ),
        ("category", "measure"),
    )
