"""Resampling by prompt: which prompts each bootstrap sample holds, and intervals from the resampled values.

Tokens of one prompt are not independent, so the prompt is always what is drawn, with all its rows; where prompts are
not independent of each other either, a whole group of them is. What is said here of prompts holds for groups then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from specstudy.condition import STUDY_CONDITION, Condition

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

FEWEST_DRAWN = 3
"""An interval rests on at least so many prompts, or groups of them."""
NO_SPREAD = "the same in every sample of prompts"


@dataclass(frozen=True)
class AnalysisSettings:
    """How intervals are made, and what the answers speak about.

    `confidence`: coverage of every interval. `primary`: the condition of claims and of figures of one condition (the
    nearest measured one where it was not measured). `sink_threshold`: the z-score over which a position was a sink at
    prefill. `thresholds`: those tried on the stored z-scores. `prompt_sets`: the sets that the prompts are of.
    """

    bootstrap_samples: int = 2000
    confidence: float = 0.95
    seed: int = 0
    primary: Condition = STUDY_CONDITION
    sink_threshold: float = 6.0
    thresholds: tuple[float, ...] = (2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
    prompt_sets: tuple[str, ...] = ()
    _counts: dict[int, Floats] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def tails(self) -> tuple[float, float]:
        """The levels of the quantiles between which an interval lies."""
        return (1 - self.confidence) / 2, (1 + self.confidence) / 2

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
    """A statistic's bootstrap distribution, read by expanded percentiles (Hesterberg 2015, section 3.3).

    `samples` float64 (samples,): the statistic in each sample, NaN where it is not defined. Plain percentiles are too
    narrow where prompts are few or uneven: the sample's spread is that about its own mean, and its tails are the
    normal's where they ought to be Student's. So tails are taken at `widening` times t with `degrees` of freedom.
    `jackknife` float64 (prompts,): the statistic without each prompt, up to a common summand; empty for a quantile.
    """

    value: float
    samples: Floats
    widening: float
    degrees: float
    jackknife: Floats

    @cached_property
    def is_constant(self) -> bool:
        """Whether every sample holds the same value: the data vary in nothing that the statistic could show."""
        return bool(np.nanstd(self.samples) <= 1e-12 * max(1.0, abs(self.value)))

    def interval(self, confidence: float) -> tuple[float, float]:
        """The interval of this coverage."""
        # What scipy.stats' t and norm call, without their checks of arguments: an analysis asks thousands of times.
        tails = self.widening * special.stdtrit(self.degrees, [(1 - confidence) / 2, (1 + confidence) / 2])
        low, high = np.quantile(self.samples[np.isfinite(self.samples)], special.ndtr(tails))
        return float(low), float(high)

    def p_value(self, reference: float) -> float:
        """Two-sided p of `reference`: one minus the coverage of the interval that just reaches it.

        Of a value beyond every sample they say only that; how far it lies beyond is told in their standard deviations.
        """
        samples = self.samples[np.isfinite(self.samples)]
        edge = 1 / (2 * len(samples))
        below = np.mean(samples < reference) + np.mean(samples == reference) / 2
        tail = abs(special.ndtri(np.clip(below, edge, 1 - edge)))
        if not edge < below < 1 - edge:
            spread = samples.std()
            tail = max(tail, abs(self.value - reference) / spread) if spread > 0 else np.inf
        return float(2 * special.stdtr(self.degrees, -tail / self.widening))


@dataclass(frozen=True)
class Asymptotic:
    """A statistic with a standard error and Student's t: the interval and tests of a fitted model."""

    value: float
    error: float
    degrees: float

    def interval(self, confidence: float) -> tuple[float, float]:
        """The interval of this coverage."""
        low, high = self.value + self.error * special.stdtrit(
            self.degrees, np.array([(1 - confidence) / 2, (1 + confidence) / 2])
        )
        return float(low), float(high)

    def p_value(self, reference: float) -> float:
        """Two-sided p of the hypothesis that the true value is `reference`."""
        return float(2 * special.stdtr(self.degrees, -abs(self.value - reference) / self.error))


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

    def columns(self, value: str = "estimate", ends: str = "ci_") -> dict[str, Any]:
        """The value and the ends of its interval as columns of a table; `ends` begins the names of the latter."""
        return {value: self.value, f"{ends}low": self.low, f"{ends}high": self.high}

    def row(self) -> dict[str, Any]:
        """The columns `estimate`, `ci_low`, `ci_high` and `null_reason` of a table."""
        return {**self.columns(), "null_reason": self.null_reason}

    def against(self, reference: float) -> Estimate:
        """The same with the p-value of `reference` by its uncertainty, if it has any."""
        return replace(self, p_value=self.uncertainty.p_value(reference) if self.uncertainty else None)


def too_few(n_drawn: int) -> str | None:
    """Says that so few prompts, or groups of them, give no interval, or None."""
    return f"{n_drawn} independent prompts; an interval needs {FEWEST_DRAWN}" if n_drawn < FEWEST_DRAWN else None


def drawn_together(groups: Codes | None, kept: NDArray[np.bool_]) -> tuple[Codes, int]:
    """The groups of the prompts that are kept, numbered from 0, and how many groups there are.

    `groups` int (prompts,), None where each prompt is its own; `kept` (prompts,).
    """
    if groups is None:
        n_kept = int(kept.sum())
        return np.arange(n_kept, dtype=np.intp), n_kept
    codes: Codes = np.unique(groups[kept], return_inverse=True)[1].astype(np.intp)
    return codes, int(codes.max(initial=-1)) + 1


def resampled(
    value: float, samples: Floats, jackknife: Floats, groups: Codes | None = None, inflation: float = 1.0
) -> Resampled | None:
    """A bootstrap distribution, widened to the jackknife's error; None if no sample gave a value.

    `samples` float64 (samples,): the statistic in each sample, NaN where it is not defined. `jackknife` float64
    (prompts,): the statistic without each prompt, up to a common summand. `groups` (prompts,): the group that each
    prompt was drawn from, if several. `inflation` widens further, for what neither resampling knows of.
    """
    if not np.isfinite(samples).any():
        return None
    error, degrees = jackknife_error(jackknife, groups)
    spread = float(np.nanstd(samples))
    widening = error / spread if error > 0 and spread > 0 else 1.0
    return Resampled(value, samples, inflation * widening, degrees, jackknife)


def by_group(totals: Floats, groups: Codes | None) -> Floats:
    """Prompts' parts in sums, float64 (prompts, k), added up within groups (prompts,): (groups, k)."""
    codes, n_groups = drawn_together(groups, np.ones(len(totals), dtype=np.bool_))
    return np.column_stack([np.bincount(codes, column, n_groups) for column in totals.T])


def resampled_totals(
    totals: Floats, statistic: Callable[[Floats], Floats], settings: AnalysisSettings, inflation: float = 1.0
) -> Resampled | None:
    """The bootstrap distribution of a function of sums over rows; None if no sample gave a value.

    `totals` float64 (prompts, k): each prompt's part in the sums. `statistic`: sums (samples, k) -> (samples,).
    """
    whole = totals.sum(axis=0)
    samples = statistic(settings.counts(len(totals)) @ totals)
    return resampled(float(statistic(whole[None])[0]), samples, statistic(whole - totals), inflation=inflation)


def resampled_quantile(value: float, samples: Floats, n_prompts: int) -> Resampled | None:
    """A bootstrap distribution of a median or another quantile, whose jackknife says nothing: widened by n alone."""
    if not np.isfinite(samples).any():
        return None
    return Resampled(value, samples, float(np.sqrt(n_prompts / (n_prompts - 1))), n_prompts - 1, np.zeros(0))


def jackknife_error(jackknife: Floats, groups: Codes | None = None) -> tuple[float, float]:
    """Standard error from leaving out each prompt in turn, and its degrees of freedom.

    The degrees are those of Pan and Wall (2002), from how unequal the prompts' parts in the variance are, and at most
    those of Welch (1947) and Satterthwaite. Prompts without which the statistic is not defined are passed over.
    """
    known = np.isfinite(jackknife)
    codes = np.zeros(len(jackknife), dtype=np.intp) if groups is None else groups
    codes = np.unique(codes[known], return_inverse=True)[1]
    sizes = np.bincount(codes)
    if not known.any() or sizes.min() < 2:
        return 0.0, float(max(1, known.sum() - 1))
    deviations = jackknife[known] - (np.bincount(codes, jackknife[known]) / sizes)[codes]
    parts = (1 - 1 / sizes)[codes] * deviations**2
    variances = np.bincount(codes, parts)
    total = float(variances.sum())
    if total <= (1e-12 * np.abs(jackknife[known]).max()) ** 2:  # no spread but by rounding
        return 0.0, float(len(parts) - len(sizes))
    uneven = float(np.sum((parts - (variances / sizes)[codes]) ** 2))
    by_parts = 2 * total**2 / uneven if uneven > 0 else np.inf
    return float(np.sqrt(total)), float(min(by_parts, total**2 / np.sum(variances**2 / (sizes - 1))))


def estimate(
    n: int, uncertainty: Resampled | Asymptotic | None, confidence: float, p_value: float | None = None
) -> Estimate:
    """An estimate with the interval of its uncertainty; a bootstrap that shows no spread knows of none."""
    if uncertainty is None:
        return Estimate(n, null_reason="not defined in any bootstrap sample")
    if isinstance(uncertainty, Resampled) and uncertainty.is_constant:
        return Estimate(n, uncertainty.value, null_reason=NO_SPREAD)
    low, high = uncertainty.interval(confidence)
    return Estimate(n, uncertainty.value, low, high, p_value, uncertainty=uncertainty)
