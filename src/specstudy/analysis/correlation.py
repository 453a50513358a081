"""One correlation with its interval, p-value and the reason where it has none."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
from scipy import special, stats

from specstudy.analysis.bootstrap import (
    FEWEST_DRAWN,
    NO_SPREAD,
    AnalysisSettings,
    Asymptotic,
    Codes,
    Estimate,
    Floats,
    Resampled,
    estimate,
    jackknife_error,
    resampled_totals,
)

Method = Literal["pearson", "spearman"]

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

    x, y: float64 (rows,), NaN where not measured. prompts: int (rows,), the prompt of each row, or its group.
    covariates: float64 (rows, k) to hold constant (a partial correlation), None for none; categories are dummies. For
    Spearman, covariates are ranked as x and y are before they are removed, so that what a covariate makes in any
    monotonic way is removed too (to a dummy, ranking does nothing). Covariates are taken as given.

    The p-value is the t-test of a correlation where each prompt gives one row, else a t-test with the error of a
    jackknife over prompts.
    """
    kept = np.isfinite(x) & np.isfinite(y)
    if covariates is not None:
        kept &= np.isfinite(covariates).all(axis=1)
    x, y, (codes, drawn) = x[kept], y[kept], pd.factorize(prompts[kept], sort=True)
    n, n_prompts = len(x), len(drawn)
    design = design_of(np.zeros((n, 0)) if covariates is None else covariates[kept], method)
    reason = why_undefined(x, y, n_prompts, method, design)
    if reason:
        return Estimate(n, null_reason=reason)
    found = resampled_correlation(x, y, codes, method, design, settings)
    if found is None:
        return estimate(n, None, settings.confidence)
    one_row_each = n == n_prompts
    taken = taken_by(design, n_prompts)
    p_value = _t_test(found.value, n - 1 - _rank(design)) if one_row_each else _clustered_test(found, taken)
    if not found.is_constant:
        return estimate(n, found, settings.confidence, p_value)
    if abs(found.value) < 1 - 1e-9:
        return Estimate(n, null_reason=NO_SPREAD)
    # Measures that agree throughout do so in every sample, and yet are not constant.
    return Estimate(n, found.value, *found.interval(settings.confidence), p_value, uncertainty=found)


def design_of(covariates: Floats, method: Method) -> Floats:
    """What is held constant, as a correlation takes it: a column of ones and the covariates (rows, k), ranked for
    Spearman."""
    held = stats.rankdata(covariates, axis=0) if method == "spearman" and covariates.size else covariates
    return np.column_stack([np.ones(len(covariates)), held])


def _as_asked(values: Floats, method: Method) -> Floats:
    return np.asarray(stats.rankdata(values), dtype=np.float64) if method == "spearman" else values


def resampled_correlation(
    x: Floats, y: Floats, prompts: Codes, method: Method, design: Floats, settings: AnalysisSettings
) -> Resampled | None:
    """The bootstrap distribution of a correlation given a design (`design_of`), prompts numbered from 0.

    Resampled from each prompt's moments of the residuals. What a sample does to the ranks is added to the first order
    (Croux and Dehon 2010), on Fisher's z scale; what is held constant takes its degrees of freedom.
    """
    measures = [_as_asked(values, method) for values in (x, y)]
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

    return resampled_totals(totals, coefficient, settings, inflation=taken_by(design, len(totals)))


def taken_by(design: Floats, n_prompts: int) -> float:
    """How much wider an interval is for the degrees of freedom that a design (rows, k) takes beyond its constant, of
    those that so many independent prompts have."""
    free = n_prompts - 1
    return float(np.sqrt(free / (free + 1 - _rank(design))))


def why_undefined(x: Floats, y: Floats, n_prompts: int, method: Method, design: Floats) -> str | None:
    """The reason why a correlation given a design is not defined, or None if it is."""
    if n_prompts < FEWEST_DRAWN:
        return f"{n_prompts} independent prompts with both measures; {FEWEST_DRAWN} are needed"
    if n_prompts - 1 - _rank(design) < 1:
        return f"{n_prompts} independent prompts are too few to hold {_rank(design) - 1} covariates constant"
    for name, values in (("x", x), ("y", y)):
        reason = why_constant(values)
        if reason:
            return f"{name} {reason}"
        if design.shape[1] > 1:
            asked = _as_asked(values, method)
            if np.ptp(asked - design @ np.linalg.lstsq(design, asked, rcond=None)[0]) < 1e-9 * np.ptp(asked):
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
    return 1 if design.shape[1] == 1 else int(np.linalg.matrix_rank(design))


def _t_test(value: float, degrees: int) -> float:
    if abs(value) >= 1:
        return 0.0
    return float(2 * special.stdtr(degrees, -abs(value) * np.sqrt(degrees / (1 - value**2))))


def _clustered_test(found: Resampled, taken: float) -> float:
    """p of no correlation by the jackknife over prompts, on Fisher's z scale; `taken` as `taken_by` has it."""
    bounded = np.clip(np.r_[found.value, found.jackknife], -1 + 1e-12, 1 - 1e-12)
    value, *without = np.arctanh(bounded)
    error, degrees = jackknife_error(np.array(without))
    return Asymptotic(float(value), taken * error, degrees).p_value(0.0) if error > 0 else 0.0
