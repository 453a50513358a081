"""Resampling by prompt: which prompts each bootstrap sample holds, and intervals from the resampled values.

Tokens of one prompt are not independent, so the prompt is always what is drawn, with all its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from specstudy.setting import STUDY_SETTING, Setting

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]


@dataclass(frozen=True)
class AnalysisSettings:
    """How intervals are made, and what the answers speak about.

    `confidence` is the coverage of every interval; `primary` is the setting of claims and single-setting figures (the
    nearest measured one where it was not measured); `sink_threshold` is the z-score over which a position counted as a
    sink at prefill.
    """

    bootstrap_samples: int = 2000
    confidence: float = 0.95
    seed: int = 0
    primary: Setting = STUDY_SETTING
    sink_threshold: float = 6.0
    _counts: dict[int, Floats] = field(default_factory=dict, init=False, repr=False, compare=False)

    def counts(self, n_prompts: int) -> Floats:
        """How often each of `n_prompts` prompts is drawn in each sample: float64 (samples, n_prompts), rows sum to n.

        Depends on the seed and the number of prompts alone, so no estimate changes when others are added.
        """
        if n_prompts not in self._counts:
            rng = np.random.default_rng([self.seed, n_prompts])
            drawn = (
                np.bincount(rng.integers(n_prompts, size=n_prompts), minlength=n_prompts)
                for _ in range(self.bootstrap_samples)
            )
            self._counts[n_prompts] = np.array(list(drawn), dtype=np.float64)
        return self._counts[n_prompts]


@dataclass(frozen=True)
class Estimate:
    """A number with its uncertainty: `n` rows; all None but `null_reason` where it is not defined."""

    n: int
    value: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    null_reason: str | None = None


def interval(estimate: float, resampled: Floats, influence: Floats, confidence: float) -> tuple[float, float] | None:
    """Bias-corrected and accelerated (BCa) interval (Efron 1987); None if no sample gave a value.

    `resampled` float64 (samples,): the statistic in each sample, NaN where it is not defined. `influence` float64
    (prompts,): each prompt's influence on the statistic, from which the acceleration comes.
    """
    values = resampled[np.isfinite(resampled)]
    if not len(values):
        return None
    below = np.mean(values < estimate) + np.mean(values == estimate) / 2
    edge = 1 / (2 * len(values))
    bias = stats.norm.ppf(np.clip(below, edge, 1 - edge))
    spread = np.sum(influence**2)
    acceleration = np.sum(influence**3) / (6 * spread**1.5) if spread > 0 else 0.0
    tails = bias + stats.norm.ppf([(1 - confidence) / 2, (1 + confidence) / 2])
    levels = stats.norm.cdf(bias + tails / (1 - acceleration * tails))
    low, high = np.quantile(values, levels)
    return float(low), float(high)
