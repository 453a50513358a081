"""What the self-check found, check by check, and how it is told."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

DISTRIBUTION_LEVEL = 1e-4


class _Counted:
    """Passes where no more places than tolerated are beyond what rounding explains."""

    n_beyond_limit: int
    n_tolerated: int

    @property
    def passed(self) -> bool:
        return self.n_beyond_limit <= self.n_tolerated


@dataclass(frozen=True)
class LogitCheck(_Counted):
    """Cached against uncached logits of one model in `n_logits` places: the largest difference of a single logit, and
    the largest root mean square difference over the vocabulary, against what rounding explains (`measure.rounding`);
    in how many places it is beyond that, and in how many it may be."""

    largest_difference: float
    largest_rms_difference: float
    limit_rms: float
    n_logits: int
    n_beyond_limit: int
    n_tolerated: int


@dataclass(frozen=True)
class GreedyCheck(_Counted):
    """Greedy decoding, speculative and plain: `n_equal` tokens until they part. Both are held against uncached passes:
    how far a token's logit is below the largest, at most, against what rounding explains."""

    n_equal: int
    n_tokens: int
    largest_gap: float
    limit_gap: float
    n_beyond_limit: int
    n_tolerated: int


@dataclass(frozen=True)
class AttentionCheck:
    """The attention that both models run with against explicit attention in float32, in prefill and cached passes:
    the largest error of `n_compared`, as a share of the values."""

    largest_error: float
    limit_error: float
    n_compared: int

    @property
    def passed(self) -> bool:
        return self.largest_error <= self.limit_error


@dataclass(frozen=True)
class DistributionCheck:
    """Kolmogorov-Smirnov test of emitted tokens against the verifier's own distribution, recomputed without a cache."""

    n_tokens: int
    p_value: float

    @property
    def passed(self) -> bool:
        return self.p_value >= DISTRIBUTION_LEVEL


@dataclass(frozen=True)
class SelfCheck:
    """All checks of one pair. `draft_logits` is None where nothing is drafted by a model, `attention` where no model
    runs a kernel."""

    verifier_logits: LogitCheck
    draft_logits: LogitCheck | None
    greedy: GreedyCheck
    distribution: DistributionCheck
    attention: AttentionCheck | None

    @property
    def passed(self) -> bool:
        return all(check.passed for check in vars(self).values() if check)

    def report(self) -> dict[str, Any]:
        """Every number as plain nested values, each check with its verdict."""
        checks = {name: check for name, check in vars(self).items() if check}
        return {
            "passed": self.passed,
            **{name: {"passed": check.passed, **_storable(asdict(check))} for name, check in checks.items()},
        }

    def summary(self) -> dict[str, Any]:
        """What decided, as one check."""
        draft = self.draft_logits
        values = {
            "verifier_rms": self.verifier_logits.largest_rms_difference,
            "limit_rms": self.verifier_logits.limit_rms,
            "draft_rms": draft.largest_rms_difference if draft else None,
            "draft_limit_rms": draft.limit_rms if draft else None,
            "n_greedy_equal": self.greedy.n_equal,
            "greedy_gap": self.greedy.largest_gap,
            "limit_gap": self.greedy.limit_gap,
            "distribution_p_value": self.distribution.p_value,
            "attention_error": self.attention.largest_error if self.attention else None,
        }
        return {"passed": self.passed, **_storable(values)}


def _storable(values: dict[str, Any]) -> dict[str, Any]:
    """Numbers that are not finite as null, which JSON knows, and their names under `not_finite`, if there are any."""
    not_finite = [name for name, value in values.items() if value is not None and not np.isfinite(value)]
    told = {"not_finite": not_finite} if not_finite else {}
    return {**values, **dict.fromkeys(not_finite), **told}
