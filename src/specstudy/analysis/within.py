"""Correlations inside prompts: one coefficient a prompt, and their median over prompts."""

from __future__ import annotations

from dataclasses import replace

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
)
from specstudy.analysis.correlation import Method, why_constant
from specstudy.analysis.means import median

FEWEST_ROWS = 8
"""A coefficient inside a prompt rests on at least so many rows."""


def coefficients_within(
    x: Floats, y: Floats, groups: Codes, n_groups: int, method: Method, held: Floats | None = None
) -> Floats:
    """The coefficient of x and y (rows,) inside each group, partial on `held` (rows,) if given: float64 (n_groups,).

    `groups` int (rows,): 0 to n_groups - 1, prompts or answers. For Spearman `held` is ranked too. NaN under
    `FEWEST_ROWS` rows, and where a measure is constant or fixed by the covariate. Rows with a NaN are left out.
    """
    kept = np.isfinite(x) & np.isfinite(y)
    columns = {"x": x[kept], "y": y[kept]} | ({} if held is None else {"held": held[kept]})
    codes, values = groups[kept], pd.DataFrame(columns)
    values = values.groupby(codes).rank() if method == "spearman" else values
    values -= values.groupby(codes).transform("mean")
    enough = np.bincount(codes, minlength=n_groups) >= FEWEST_ROWS

    def coefficient(a: str, b: str) -> Floats:
        ab, aa, bb = (np.bincount(codes, values[p] * values[q], n_groups) for p, q in ((a, b), (a, a), (b, b)))
        defined = (aa > 1e-12) & (bb > 1e-12) & enough
        return np.where(defined, ab / np.sqrt(np.where(defined, aa * bb, 1.0)), np.nan)

    if held is None:
        return coefficient("x", "y")
    xy, xh, yh = coefficient("x", "y"), coefficient("x", "held"), coefficient("y", "held")
    left = (1 - xh**2) * (1 - yh**2)
    free = left > 1e-12
    return np.where(free, (xy - xh * yh) / np.sqrt(np.where(free, left, 1.0)), np.nan)


def median_within_prompt(
    x: Floats, y: Floats, prompts: Codes, method: Method, settings: AnalysisSettings, groups: Codes | None = None
) -> Estimate:
    """Median over prompts of the coefficient inside one prompt; n is the number of prompts that have one.

    `prompts` int (rows,): numbered from 0. `groups` int (rows,): prompts of one group are drawn together. p is
    Wilcoxon's signed-rank test that the coefficients are centred at zero; with groups it is that of the bootstrap.
    """
    coefficients = coefficients_within(x, y, prompts, int(prompts.max(initial=-1)) + 1, method)
    if groups is not None:
        of_prompt = np.zeros(len(coefficients), dtype=np.intp)
        of_prompt[prompts] = groups
        groups = of_prompt
    known = np.isfinite(coefficients)
    coefficients, n_groups = coefficients[known], drawn_together(groups, known)[1]
    n = len(coefficients)
    if n_groups < FEWEST_DRAWN:
        return Estimate(n, null_reason=f"{n_groups} independent prompts have a coefficient; {FEWEST_DRAWN} are needed")
    if reason := why_constant(coefficients):
        return Estimate(n, null_reason=f"the coefficient {reason}")
    found = median(coefficients, settings, groups=None if groups is None else groups[known])
    if n_groups < n or found.uncertainty is None:
        return found
    return replace(found, p_value=float(stats.wilcoxon(coefficients).pvalue))
