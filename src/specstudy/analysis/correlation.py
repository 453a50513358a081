"""One correlation with its interval, p-value and the reason where it has none."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
from scipy import stats

from specstudy.analysis.bootstrap import (
    AnalysisSettings,
    Asymptotic,
    Codes,
    Estimate,
    Floats,
    Resampled,
    estimate,
    jackknife_error,
    resampled,
    resampled_totals,
)

Method = Literal["pearson", "spearman"]

# Up to this many rows every resample is ranked anew; above, that would take an array of rows x samples.
EXACT_ROWS = 400
# A measure must leave its commonest value in this many rows, or a handful of rows would make the coefficient.
ROWS_OFF_THE_MODE = 5


def correlate(
    x: Floats,
    y: Floats,
    prompts: Codes,
    method: Method,
    settings: AnalysisSettings,
    covariates: Floats | None = None,
) -> Estimate:
    """Correlation of x and y, given covariates, with a bootstrap interval over prompts.

    x, y: float64 (rows,), NaN where not measured. prompts: int (rows,), the prompt of each row. covariates: float64
    (rows, k) to hold constant (a partial correlation), None for none. For Spearman, x and y are ranked before
    covariates are removed; covariates are taken as given.

    The p-value is the t-test of a correlation where each prompt gives one row, else a t-test with the error of a
    jackknife over prompts. Up to `EXACT_ROWS` rows each resample is ranked anew and its covariates removed anew.
    """
    kept = np.isfinite(x) & np.isfinite(y)
    if covariates is not None:
        kept &= np.isfinite(covariates).all(axis=1)
    x, y, (codes, drawn) = x[kept], y[kept], pd.factorize(prompts[kept], sort=True)
    n, n_prompts = len(x), len(drawn)
    design = np.ones((n, 1)) if covariates is None else np.column_stack([np.ones(n), covariates[kept]])
    reason = why_undefined(x, y, n_prompts, design)
    if reason:
        return Estimate(n, null_reason=reason)
    found = resampled_correlation(x, y, codes, method, design, settings)
    one_row_each = n == n_prompts
    p_value = None
    if found is not None:
        p_value = _t_test(found.value, n - 1 - _rank(design)) if one_row_each else _clustered_test(found)
    return estimate(n, found, settings.confidence, p_value)


def resampled_correlation(
    x: Floats, y: Floats, prompts: Codes, method: Method, design: Floats, settings: AnalysisSettings
) -> Resampled | None:
    """The bootstrap distribution of a correlation given a design (rows, k), prompts numbered from 0."""
    n, n_prompts = len(x), int(prompts.max()) + 1
    if n > EXACT_ROWS:
        return _by_moments(x, y, prompts, method, design, settings)
    value = float(weighted_correlation(x, y, np.ones((1, n)), method, design)[0])
    samples, jackknife = (
        weighted_correlation(x, y, weights[:, prompts], method, design)
        for weights in (settings.counts(n_prompts), 1 - np.eye(n_prompts))
    )
    return resampled(value, samples, jackknife)


def _by_moments(
    x: Floats, y: Floats, prompts: Codes, method: Method, design: Floats, settings: AnalysisSettings
) -> Resampled | None:
    """The same from each prompt's moments of the residuals. What a sample does to the ranks is added to the first
    order (Croux and Dehon 2010), on Fisher's z scale."""
    measures = [stats.rankdata(values) if method == "spearman" else values for values in (x, y)]
    residuals = [values - design @ np.linalg.lstsq(design, values, rcond=None)[0] for values in measures]
    scales = [float(np.sqrt(np.mean(values**2))) for values in residuals]
    u, v = (values / scale for values, scale in zip(residuals, scales, strict=True))
    value, effect = float(np.mean(u * v)), np.zeros(len(u))
    if method == "spearman":
        effect += rank_effect(measures[0], v - value * u) / scales[0]
        effect += rank_effect(measures[1], u - value * v) / scales[1]
        effect -= effect.mean()
    columns = (np.ones(len(u)), u, v, u * u, v * v, u * v, effect)
    totals = np.column_stack([np.bincount(prompts, column) for column in columns]).astype(np.float64)

    def coefficient(sums: Floats) -> Floats:
        n, u, v, uu, vv, uv, moved = sums.T
        variances = (uu - u * u / n) * (vv - v * v / n)
        defined = variances > 1e-18 * n**2
        plain = np.where(defined, uv - u * v / n, np.nan) / np.sqrt(np.where(defined, variances, 1.0))
        bounded = np.clip(plain, -1 + 1e-12, 1 - 1e-12)
        correlations: Floats = np.tanh(np.arctanh(bounded) + moved / n / max(1 - value**2, 1e-12))
        return correlations

    return resampled_totals(totals, coefficient, settings)


def why_undefined(x: Floats, y: Floats, n_prompts: int, design: Floats) -> str | None:
    """The reason why a correlation is not defined, or None if it is."""
    if n_prompts < 3:
        return f"{n_prompts} prompts with both measures; 3 are needed"
    if len(x) - 1 - _rank(design) < 1:
        return f"{len(x)} rows are too few to hold {_rank(design) - 1} covariates constant"
    for name, values in (("x", x), ("y", y)):
        reason = why_constant(values)
        if reason:
            return f"{name} {reason}"
        if np.ptp(values - design @ np.linalg.lstsq(design, values, rcond=None)[0]) < 1e-9 * np.ptp(values):
            return f"{name} is fixed by the covariates"
    return None


def why_constant(values: Floats) -> str | None:
    """Says that a column is constant or nearly so, or None."""
    n, mode = len(values), _commonest(values)
    off_mode = int(np.count_nonzero(values != mode))
    if np.ptp(values) <= 1e-9 * max(1.0, abs(mode)):
        return f"is constant ({mode:.4g})"
    if off_mode < min(ROWS_OFF_THE_MODE, n - 1):
        return f"is nearly constant ({mode:.4g} in {n - off_mode} of {n} rows)"
    return None


def _commonest(values: Floats) -> float:
    """The commonest value; of many rows the median, which it is wherever a column is nearly constant."""
    if len(values) > 2 * ROWS_OFF_THE_MODE:
        return float(np.partition(values, len(values) // 2)[len(values) // 2])
    distinct, times = np.unique(values, return_counts=True)
    return float(distinct[times.argmax()])


def weighted_correlation(x: Floats, y: Floats, weights: Floats, method: Method, design: Floats) -> Floats:
    """The coefficient under each row of weights: weights (samples, rows) -> (samples,); NaN where not defined.

    A weight is how often a row is drawn. Ranks and the removal of covariates are redone in each sample.
    """
    ranked = [_weighted_midranks(v, weights) if method == "spearman" else v for v in (x, y)]
    residual_x, residual_y = _weighted_residuals(ranked, weights, design)
    covariance = np.sum(weights * residual_x * residual_y, axis=1)
    variances = np.sum(weights * residual_x**2, axis=1) * np.sum(weights * residual_y**2, axis=1)
    scales = np.prod([np.sum(weights * np.square(v), axis=1) for v in ranked], axis=0)
    defined = variances > 1e-18 * scales
    coefficients = covariance / np.sqrt(np.where(defined, variances, 1.0))
    return np.where(defined, np.clip(coefficients, -1, 1), np.nan)


def _weighted_midranks(values: Floats, weights: Floats) -> Floats:
    order = np.argsort(values, kind="stable")
    steps = np.diff(values[order], prepend=np.nan) != 0
    codes = np.empty(len(values), dtype=np.intp)
    codes[order] = np.cumsum(steps) - 1
    mass = np.add.reduceat(weights[:, order], np.flatnonzero(steps), axis=1)
    midranks: Floats = np.cumsum(mass, axis=1) - mass / 2
    return midranks[:, codes]


def _weighted_residuals(measures: list[Floats], weights: Floats, design: Floats) -> list[Floats]:
    """What a weighted least-squares fit of each measure on the design leaves: (samples, rows) each."""
    if design.shape[1] == 1:
        total = weights.sum(axis=1, keepdims=True)
        return [values - np.sum(weights * values, axis=1, keepdims=True) / total for values in measures]
    k = design.shape[1]
    products = (design[:, :, None] * design[:, None, :]).reshape(len(design), k * k)
    gram = (weights @ products).reshape(-1, k, k)
    # A category may be missing from a sample: the pseudo-inverse leaves its coefficient at zero.
    inverse = np.linalg.pinv(gram, rcond=1e-10, hermitian=True)
    moments = [(weights * values) @ design for values in measures]
    return [
        values - np.einsum("bij,bj->bi", inverse, moment) @ design.T
        for values, moment in zip(measures, moments, strict=True)
    ]


def rank_effect(ranks: Floats, slopes: Floats) -> Floats:
    """What a row adds by raising the ranks at or above its own, ties by a half: (rows,).

    `slopes` (rows,): what the coefficient gains from a step of each row's rank. Midranks are halves of integers.
    """
    places = (2 * ranks).astype(np.intp)
    mass = np.bincount(places, slopes)
    at_or_above = np.cumsum(mass[::-1])[::-1]
    effect: Floats = at_or_above - mass / 2
    return effect[places]


def _rank(design: Floats) -> int:
    return int(np.linalg.matrix_rank(design))


def _t_test(value: float, degrees: int) -> float:
    if abs(value) >= 1:
        return 0.0
    return float(2 * stats.t.sf(abs(value) * np.sqrt(degrees / (1 - value**2)), degrees))


def _clustered_test(found: Resampled) -> float:
    """p of no correlation by the jackknife over prompts, on Fisher's z scale."""
    bounded = np.clip(np.r_[found.value, found.jackknife], -1 + 1e-12, 1 - 1e-12)
    value, *without = np.arctanh(bounded)
    error, degrees = jackknife_error(np.array(without))
    return Asymptotic(float(value), error, degrees).p_value(0.0) if error > 0 else 0.0
