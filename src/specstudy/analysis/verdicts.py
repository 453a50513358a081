"""How an estimate becomes a verdict, and what is said about it. The rules stand at the head of claims.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from specstudy.analysis.bootstrap import Estimate
from specstudy.analysis.declarations import Declaration

Verdict = Literal["supported", "contradicted", "undecided", "not_run"]

POWER = 0.8


@dataclass(frozen=True)
class Finding:
    """A test's outcome: the estimate, the prompts behind it, and what was estimated, in words.

    `scale` is `correlation` where the effect is one: its error is then that of Fisher's z.
    """

    estimate: Estimate
    n_prompts: int = 0
    words: str = ""
    scale: Literal["correlation", "own"] = "own"


def not_run(reason: str) -> Finding:
    """The outcome where what a test needs was not measured."""
    return Finding(Estimate(0, null_reason=reason))


def p_at_margin(claim: Declaration, estimate: Estimate) -> float | None:
    """Two-sided p of the boundary that is hardest to exclude; None without an estimate."""
    if estimate.uncertainty is None:
        return None
    return max(estimate.uncertainty.p_value(boundary) for boundary in claim.boundaries)


def decide(claim: Declaration, estimate: Estimate, p_adjusted: float | None, confidence: float) -> Verdict:
    """The verdict: the interval must leave the boundary on one side, and the adjusted p must be small enough."""
    if estimate.low is None or estimate.high is None:
        return "not_run"
    side = _side(claim, estimate.low, estimate.high)
    return "undecided" if p_adjusted is None or p_adjusted > 1 - confidence else side


def _side(claim: Declaration, low: float, high: float) -> Verdict:
    first, last = claim.boundaries[0], claim.boundaries[-1]
    if claim.direction == "equivalent":
        if first < low and high < last:
            return "supported"
        return "contradicted" if high < first or low > last else "undecided"
    above: Verdict = "supported" if claim.direction == "greater" else "contradicted"
    below: Verdict = "contradicted" if claim.direction == "greater" else "supported"
    return above if low > first else below if high < first else "undecided"


def detectable_effect(claim: Declaration, finding: Finding, confidence: float) -> float | None:
    """The minimum detectable effect (distance from the reference) at 80 % power, before Holm's adjustment.

    For an equivalence: the smallest margin that a true effect of zero would be shown to lie within.
    """
    estimate = finding.estimate
    if estimate.low is None or estimate.high is None:
        return None
    if finding.scale == "correlation":
        return detectable_correlation(estimate.low, estimate.high, confidence, claim.margin)
    two_sided = stats.norm.ppf((1 + confidence) / 2)
    error = (estimate.high - estimate.low) / (2 * two_sided)
    if claim.direction == "equivalent":
        return float((two_sided + stats.norm.ppf((1 + POWER) / 2)) * error)
    return float(claim.margin + (two_sided + stats.norm.ppf(POWER)) * error)


def detectable_correlation(low: float, high: float, confidence: float, margin: float = 0.0) -> float:
    """The minimum detectable correlation beyond `margin` at 80 % power, for intervals as wide as this one in Fisher's z
    (where the width does not depend on the correlation)."""
    most = 1.0 - 1e-12
    first, last = np.arctanh(np.clip([low, high], -most, most))
    half_width = (last - first) / 2
    reach = 1 + stats.norm.ppf(POWER) / stats.norm.ppf((1 + confidence) / 2)
    return float(np.tanh(np.arctanh(margin) + half_width * reach))


def note(claim: Declaration, finding: Finding, verdict: Verdict, detectable: float | None, busy: str = "") -> str:
    """The finding in one plain sentence; `busy` says why the machine lets it decide nothing."""
    value, low, high = finding.estimate.value, finding.estimate.low, finding.estimate.high
    if value is None or low is None or high is None:
        return f"Not answered: {finding.estimate.null_reason}."
    if busy:
        reading = f"the machine was busy ({busy}), so that this decides nothing"
    elif verdict == "undecided":
        reading = _undecided(claim, low, high, detectable)
    else:
        reading = _decided(claim, low, high)
    estimate = f"{_number(value, '.2f')} [{_number(low, '.2f')}, {_number(high, '.2f')}]"
    return f"{finding.words} is {estimate} over {finding.n_prompts} prompts: {reading}."


def _effect(value: float) -> str:
    return _number(value, ".2f" if abs(value) >= 0.1 else ".2g")


def _number(value: float, form: str = "g") -> str:
    text = f"{value:{form}}"
    return (text if float(text) else text.removeprefix("-")).replace("-", "\N{MINUS SIGN}")


def _decided(claim: Declaration, low: float, high: float) -> str:
    least, most = claim.reference - claim.margin, claim.reference + claim.margin
    within = f"the whole interval lies between {_number(least)} and {_number(most)}"
    if claim.direction == "equivalent":
        outside = f"the whole interval lies outside {_number(least)} to {_number(most)}"
        return outside if _side(claim, low, high) == "contradicted" else f"{within}, as claimed"
    side = "above" if claim.direction == "greater" else "below"
    if _side(claim, low, high) == "supported":
        return f"the whole interval lies {side} {_number(claim.boundaries[0])}, as claimed"
    if least < low and high < most:
        return f"{within}, equivalent to no effect at this margin"
    missed = f"the interval does not reach {side} {_number(claim.boundaries[0])}"
    return f"{missed}, and the effect has the opposite sign" if high < least or low > most else missed


def _undecided(claim: Declaration, low: float, high: float, detectable: float | None) -> str:
    if _side(claim, low, high) == "undecided":
        reading = f"the interval includes {' or '.join(map(_number, claim.boundaries))}"
    else:
        reading = "the interval alone would decide, but not after Holm's adjustment within the family"
    if detectable is None:
        return reading
    around = f" around {_number(claim.reference)}" if claim.reference else ""
    if claim.direction == "equivalent":
        return f"{reading}; smallest equivalence margin at 80 % power: {_effect(detectable)}{around}"
    sign = 1 if claim.direction == "greater" else -1
    return f"{reading}; minimum detectable effect at 80 % power: {_effect(sign * detectable)}{around}"
