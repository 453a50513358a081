"""Any function of sums over prompts, with its interval: the sums are resampled_totals, the function is applied anew."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from specstudy.analysis.bootstrap import (
    AnalysisSettings,
    Codes,
    Estimate,
    Floats,
    by_group,
    estimate,
    resampled_totals,
    too_few,
)


def over_prompts(
    sums: Floats, function: Callable[[Floats], Floats], settings: AnalysisSettings, groups: Codes
) -> Estimate:
    """`function` of the prompts' sums [P, F], added up: it takes totals [S, F] and gives values [S], NaN if undefined.

    `groups` [P]: prompts of one group are drawn together. Influences are those of the jackknife.
    """
    n, sums = len(sums), by_group(sums, groups)
    value = float(function(sums.sum(0)[None])[0])
    if not np.isfinite(value):
        return Estimate(n, null_reason="not defined for these prompts")
    if reason := too_few(len(sums)):
        return Estimate(n, value, null_reason=reason)
    if not np.isfinite(function(sums.sum(0) - sums)).all():
        return Estimate(n, value, null_reason="not defined without some one prompt or group")
    return estimate(n, resampled_totals(sums, function, settings), settings.confidence)


def summed_by_prompt(prompts: list[int], rows: list[Floats], n_prompts: int) -> Floats:
    """Rows [F] added up within their prompts: [P, F]."""
    sums = np.zeros((n_prompts, len(rows[0])))
    np.add.at(sums, prompts, np.array(rows))
    return sums
