"""What a round costs: ratios of step times, and the speed-up that theory expects from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specstudy import formulas


@dataclass(frozen=True)
class Costs:
    """Costs of one speculative generation in steps of the verifier (a forward pass over one token).

    `target_efficiency` is None where no round had a pass over gamma + 1 tokens.
    """

    cost_ratio_flops: float
    cost_ratio_time: float
    target_efficiency: float | None
    overhead_steps: float


def measured_costs(
    verifier_step_s: Sequence[float],
    draft_s: Sequence[float],
    n_draft_passes: Sequence[int],
    n_proposed: Sequence[int],
    verify_s: Sequence[float],
    overhead_s: Sequence[float],
    gamma: int,
    cost_ratio_flops: float,
) -> Costs:
    """Costs from the forward passes of the verifier alone and from the rounds of a generation.

    Medians, so that one slow step of a busy machine does not count. `verify_s` of full rounds (gamma proposed) gives
    the pass over gamma + 1 tokens.
    """
    step_s = float(np.median(verifier_step_s))
    full = [v for v, n in zip(verify_s, n_proposed, strict=True) if n == gamma]
    draft_steps = [d / n for d, n in zip(draft_s, n_draft_passes, strict=True) if n]
    return Costs(
        cost_ratio_flops=cost_ratio_flops,
        cost_ratio_time=float(np.median(draft_steps)) / step_s if draft_steps else 0.0,
        target_efficiency=step_s / float(np.median(full)) if full else None,
        overhead_steps=float(np.median(overhead_s)) / step_s,
    )


@dataclass(frozen=True)
class StepTimes:
    """Steps of the verifier alone from token to token, seconds: the median, and the ends of the middle four fifths."""

    median_s: float
    p10_s: float
    p90_s: float


def step_times(step_s: Sequence[float]) -> StepTimes:
    """What is kept of the times of all steps: where they lie, and how even they are."""
    return StepTimes(*(float(value) for value in np.percentile(step_s, [50, 10, 90])))


def speedup_from_steps(
    verifier_step_s: float,
    n_tokens: int,
    draft_s: Sequence[float],
    verify_s: Sequence[float],
    overhead_s: Sequence[float],
) -> float:
    """Time of the verifier alone over that of the rounds, for the `n_tokens` of the rounds, both from medians.

    A burst of something else that slows a few steps or rounds does not count. Rounds must be alike: their number times
    a median is their time only if all draft as many tokens.
    """
    round_s = sum(float(np.median(part)) for part in (draft_s, verify_s, overhead_s))
    return n_tokens * verifier_step_s / (len(draft_s) * round_s)


@dataclass(frozen=True)
class Theory:
    """Expected speed-up by the formula with three sets of costs; None where alpha is not defined."""

    flops: float | None
    time: float | None
    full: float | None


def theory(alpha: float | None, gamma: int, costs: Costs) -> Theory:
    """The formula takes alpha (accepted / tested), never accepted / proposed."""
    if alpha is None:
        return Theory(None, None, None)
    efficiency = costs.target_efficiency
    return Theory(
        formulas.expected_speedup(alpha, gamma, costs.cost_ratio_flops),
        formulas.expected_speedup(alpha, gamma, costs.cost_ratio_time),
        None
        if efficiency is None
        else formulas.expected_speedup_full(alpha, gamma, costs.cost_ratio_time, efficiency, costs.overhead_steps),
    )
