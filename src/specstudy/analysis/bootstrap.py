"""Resampling by prompt: which prompts each bootstrap sample holds, and intervals from the resampled values.

Tokens of one prompt are not independent, so the prompt is always what is drawn, with all its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

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
    sink at prefill; `thresholds` are those tried on the stored z-scores.
    """

    bootstrap_samples: int = 2000
    confidence: float = 0.95
    seed: int = 0
    primary: Setting = STUDY_SETTING
    sink_threshold: float = 6.0
    thresholds: tuple[float, ...] = (2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
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


class Uncertainty(Protocol):
    """What is known about a statistic beyond its value: intervals, and how well it agrees with any value."""

    def interval(self, confidence: float) -> tuple[float, float]:
        """The interval of this coverage."""
        ...

    def p_value(self, reference: float) -> float:
        """Two-sided p of the hypothesis that the statistic's true value is `reference`."""
        ...


@dataclass(frozen=True)
class Resampled:
    """A statistic's bootstrap distribution: bias-corrected and accelerated (BCa; Efron 1987), widened for few prompts.

    `samples` float64 (samples,): the statistic in each sample where it is defined. `acceleration` comes from the
    prompts' influences. A percentile interval is too narrow because the sample's spread is that about its own mean, and
    because it takes the normal for Student's t; its tails are widened by both (Hesterberg 2015, section 3.3): by
    `widening`, sqrt(n / (n - 1)) where prompts weigh the same, and by t with `degrees` of freedom.
    """

    value: float
    samples: Floats
    acceleration: float
    widening: float
    degrees: float

    @property
    def bias(self) -> float:
        """The normal quantile of the share of samples below the value."""
        return float(stats.norm.ppf(self._share_below(self.value)))

    def interval(self, confidence: float) -> tuple[float, float]:
        """The interval of this coverage."""
        tails = self.bias + self.widening * stats.t.ppf([(1 - confidence) / 2, (1 + confidence) / 2], self.degrees)
        # Beyond a tail of 1 / acceleration the transformation turns back.
        levels = stats.norm.cdf(self.bias + tails / np.maximum(1 - self.acceleration * tails, 1e-9))
        low, high = np.quantile(self.samples, levels)
        return float(low), float(high)

    def p_value(self, reference: float) -> float:
        """Two-sided p of `reference`: one minus the coverage of the interval that just reaches it."""
        tail = stats.norm.ppf(self._share_below(reference)) - self.bias
        tail = tail / max(1 + self.acceleration * tail, 1e-9) - self.bias
        level = stats.t.cdf(tail / self.widening, self.degrees)
        return float(min(1.0, 2 * min(level, 1 - level)))

    def _share_below(self, reference: float) -> float:
        share = np.mean(self.samples < reference) + np.mean(self.samples == reference) / 2
        edge = 1 / (2 * len(self.samples))
        return float(np.clip(share, edge, 1 - edge))


@dataclass(frozen=True)
class Asymptotic:
    """A statistic with a standard error and Student's t: the interval and tests of a fitted model."""

    value: float
    error: float
    degrees: int

    def interval(self, confidence: float) -> tuple[float, float]:
        """The interval of this coverage."""
        low, high = self.value + self.error * stats.t.ppf([(1 - confidence) / 2, (1 + confidence) / 2], self.degrees)
        return float(low), float(high)

    def p_value(self, reference: float) -> float:
        """Two-sided p of the hypothesis that the true value is `reference`."""
        return float(2 * stats.t.sf(abs(self.value - reference) / self.error, self.degrees))


@dataclass(frozen=True)
class Estimate:
    """A number with its uncertainty: `n` rows; all None but `null_reason` where it is not defined."""

    n: int
    value: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    null_reason: str | None = None
    uncertainty: Uncertainty | None = field(default=None, repr=False, compare=False)


def resampled(
    value: float, samples: Floats, influence: Floats, weights: Floats | None = None, groups: Codes | None = None
) -> Resampled | None:
    """A bootstrap distribution; None if no sample gave a value.

    `samples` float64 (samples,): the statistic in each sample, NaN where it is not defined. `influence` float64
    (prompts,): each prompt's influence on the statistic, up to a common factor. `weights` (prompts,): how many rows
    each prompt brings, where they differ. `groups` (prompts,): the group that each prompt was drawn from, if several.
    """
    defined = samples[np.isfinite(samples)]
    if not len(defined):
        return None
    spread = np.sum(influence**2)
    acceleration = float(np.sum(influence**3) / (6 * spread**1.5)) if spread > 0 else 0.0
    return Resampled(value, defined, acceleration, *_small_sample(influence, weights, groups))


def _small_sample(influence: Floats, weights: Floats | None, groups: Codes | None) -> tuple[float, float]:
    """How much too narrow the bootstrap is, and the degrees of freedom of its spread.

    The jackknife's variance over the bootstrap's: a prompt that holds the share h of its group's rows has drawn the
    mean towards itself, and its influence is too small by 1 - h. Groups add up by Welch (1947) and Satterthwaite.
    """
    codes = np.zeros(len(influence), dtype=np.intp) if groups is None else groups
    rows = np.ones(len(influence)) if weights is None else weights
    sizes = np.bincount(codes)
    shares = np.clip(rows / np.bincount(codes, rows)[codes], 0.0, 0.5)
    kept = (1 - 1 / sizes)[codes]
    variances = np.bincount(codes, kept * (influence / (1 - shares)) ** 2)
    total, plain = variances.sum(), np.sum(influence**2)
    if plain <= 0 or sizes.min() < 2:
        return 1.0, float(max(1, len(influence) - 1))
    return float(np.sqrt(total / plain)), float(total**2 / np.sum(variances**2 / (sizes - 1)))


def estimate(n: int, uncertainty: Resampled | Asymptotic | None, confidence: float, p_value: float | None) -> Estimate:
    """An estimate with the interval of its uncertainty."""
    if uncertainty is None:
        return Estimate(n, null_reason="not defined in any bootstrap sample")
    low, high = uncertainty.interval(confidence)
    return Estimate(n, uncertainty.value, low, high, p_value, uncertainty=uncertainty)
