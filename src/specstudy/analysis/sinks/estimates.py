"""Means over positions that are nested in prompts, with the reason where they carry no interval."""

from __future__ import annotations

from typing import Any

import numpy as np

from specstudy.analysis.bootstrap import AnalysisSettings, Codes, Estimate, Floats
from specstudy.analysis.means import ratio


def nested_mean(values: Floats, prompts: Codes, n_prompts: int, settings: AnalysisSettings) -> Estimate:
    """Mean of float64 (rows,) with a bootstrap interval over prompts; NaN rows are left out; `n` counts rows.

    `prompts` int (rows,): 0 to n_prompts - 1. Where every row holds the same value resampling shows no spread, so
    there is no interval: none of 20 is not known to be none.
    """
    kept = np.isfinite(values)
    values, prompts = values[kept], prompts[kept]
    if len(values) and np.ptp(values) <= 1e-12 * max(1.0, abs(float(values[0]))):
        return Estimate(len(values), float(values[0]), null_reason=f"all {len(values)} positions hold the same value")
    sums = np.bincount(prompts, values, n_prompts).astype(np.float64)
    sizes = np.bincount(prompts, minlength=n_prompts).astype(np.float64)
    return ratio(sums, sizes, settings)


def as_columns(estimate: Estimate) -> dict[str, Any]:
    """An estimate as the columns `estimate`, `ci_low`, `ci_high`, `null_reason` of a table."""
    return {
        "estimate": estimate.value,
        "ci_low": estimate.low,
        "ci_high": estimate.high,
        "null_reason": estimate.null_reason,
    }
