"""The declared claims, each answered by one test and one rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

import numpy as np
import pandas as pd
import yaml
from scipy import stats

from specstudy.analysis.bootstrap import AnalysisSettings, Estimate
from specstudy.analysis.correlation import correlate
from specstudy.analysis.correlations import holm
from specstudy.analysis.means import difference, mean
from specstudy.analysis.measures import phrase
from specstudy.records import Claim, Correlation

Direction = Literal["greater", "less"]
Verdict = Literal["supported", "contradicted", "undecided", "not_run"]

POWER = 0.8


@dataclass(frozen=True)
class Declaration:
    """A claim as declared in claims.yaml; `link` names the link of the chain it speaks about, if any."""

    id: str
    statement: str
    source: str
    test: Mapping[str, Any]
    direction: Direction
    margin: float
    link: str | None = None


@dataclass(frozen=True)
class Evidence:
    """What the tests may look at; `suffix` is that of the primary setting's measures."""

    prompts: pd.DataFrame
    correlations: list[Correlation]
    suffix: str
    n_prompts_by_level: Mapping[str, int]
    settings: AnalysisSettings


@dataclass(frozen=True)
class Finding:
    """A test's outcome: the estimate, the prompts behind it, and what was estimated, in words."""

    estimate: Estimate
    n_prompts: int
    words: str


def declarations() -> list[Declaration]:
    """The claims of claims.yaml, in its order."""
    text = resources.files("specstudy.analysis").joinpath("claims.yaml").read_text(encoding="utf-8")
    return [Declaration(**entry) for entry in yaml.safe_load(text)]


def answer_claims(declared: list[Declaration], evidence: Evidence) -> list[Claim]:
    """One row a claim; Holm's adjustment runs over all claims that have a p-value."""
    findings = [TESTS[claim.test["kind"]](claim, evidence) for claim in declared]
    adjusted = holm([finding.estimate.p_value for finding in findings])
    return [
        _as_record(claim, finding, p, evidence.settings)
        for claim, finding, p in zip(declared, findings, adjusted, strict=True)
    ]


def decide(estimate: Estimate, direction: Direction, margin: float) -> Verdict:
    """Supported if the interval lies beyond the margin in the claimed direction, contradicted if on its other side."""
    if estimate.low is None or estimate.high is None:
        return "not_run"
    low, high = (estimate.low, estimate.high) if direction == "greater" else (-estimate.high, -estimate.low)
    threshold = margin if direction == "greater" else -margin
    if low > threshold:
        return "supported"
    return "contradicted" if high < threshold else "undecided"


def _correlation(claim: Declaration, evidence: Evidence) -> Finding:
    test = claim.test
    wanted = (test["level"], test["subset"], test["x"], test["method"])
    for record in evidence.correlations:
        same = (record.level, record.subset, record.x, record.method) == wanted
        if same and record.y in (test["y"], test["y"] + evidence.suffix):
            estimate = Estimate(
                record.n, record.estimate, record.ci_low, record.ci_high, record.p_value, record.null_reason
            )
            prompts = record.n if record.level == "prompt" else evidence.n_prompts_by_level[record.y]
            return Finding(
                estimate,
                prompts,
                f"{test['method'].title()} correlation of {phrase(test['x'])} with {phrase(record.y)}",
            )
    return Finding(Estimate(0, null_reason=f"{test['x']} and {test['y']} were not both measured"), 0, "")


def _mean(claim: Declaration, evidence: Evidence) -> Finding:
    measure = claim.test["measure"]
    values = _column(evidence, measure)
    estimate = mean(values, evidence.settings, reference=claim.margin)
    return Finding(estimate, estimate.n, f"Mean {phrase(measure)}")


def _difference(claim: Declaration, evidence: Evidence) -> Finding:
    test, values = claim.test, _column(evidence, claim.test["measure"])
    over, under = (values[evidence.prompts["category"].isin(test[side])] for side in ("over", "under"))
    estimate = difference(over, under, evidence.settings)
    words = f"Mean {phrase(test['measure'])} of {', '.join(test['over'])} minus that of {', '.join(test['under'])}"
    return Finding(estimate, estimate.n, words)


def _ordering(claim: Declaration, evidence: Evidence) -> Finding:
    test, categories = claim.test, evidence.prompts["category"]
    missing = [name for name in test["categories"] if name not in set(categories)]
    if missing:
        return Finding(Estimate(0, null_reason=f"no prompts of category {', '.join(missing)}"), 0, "")
    ranks = categories.map({name: place for place, name in enumerate(test["categories"])}).to_numpy(dtype=np.float64)
    prompts = np.arange(len(ranks))
    estimate = correlate(ranks, _column(evidence, test["measure"]), prompts, "spearman", evidence.settings)
    return Finding(
        estimate, estimate.n, f"Spearman correlation of {phrase(test['measure'])} with the claimed order of categories"
    )


TESTS: dict[str, Callable[[Declaration, Evidence], Finding]] = {
    "correlation": _correlation,
    "mean": _mean,
    "difference": _difference,
    "ordering": _ordering,
}


def _column(evidence: Evidence, measure: str) -> np.ndarray:
    for name in (measure, measure + evidence.suffix):
        if name in evidence.prompts:
            return evidence.prompts[name].to_numpy(dtype=np.float64)
    return np.full(len(evidence.prompts), np.nan)


def detectable_correlation(n: int, confidence: float) -> float | None:
    """The smallest correlation that n prompts show at 80 % power (Fisher's z); None under 4."""
    return None if n < 4 else float(np.tanh(_power_quantiles(confidence) / np.sqrt(n - 3)))


def detectable_shift(estimate: Estimate, confidence: float) -> float | None:
    """The smallest distance from the margin that shows at 80 % power, from the interval's own width."""
    if estimate.low is None or estimate.high is None:
        return None
    error = (estimate.high - estimate.low) / (2 * stats.norm.ppf((1 + confidence) / 2))
    return float(_power_quantiles(confidence) * error)


def _power_quantiles(confidence: float) -> float:
    return float(stats.norm.ppf((1 + confidence) / 2) + stats.norm.ppf(POWER))


def _as_record(claim: Declaration, finding: Finding, p_adjusted: float | None, settings: AnalysisSettings) -> Claim:
    estimate = finding.estimate
    verdict = decide(estimate, claim.direction, claim.margin)
    one_row_a_prompt = claim.test["kind"] == "ordering" or claim.test.get("level") == "prompt"
    detectable = (
        detectable_correlation(finding.n_prompts, settings.confidence)
        if one_row_a_prompt and verdict != "not_run"
        else detectable_shift(estimate, settings.confidence)
    )
    return Claim(
        claim_id=claim.id,
        statement=claim.statement,
        verdict=verdict,
        estimate=estimate.value,
        ci_low=estimate.low,
        ci_high=estimate.high,
        p_adjusted=p_adjusted,
        margin=claim.margin,
        detectable_effect=detectable,
        n=finding.n_prompts,
        note=_note(claim, finding, verdict, detectable),
    )


def _note(claim: Declaration, finding: Finding, verdict: Verdict, detectable: float | None) -> str:
    estimate, side = finding.estimate, "above" if claim.direction == "greater" else "below"
    if verdict == "not_run":
        return f"Not answered: {estimate.null_reason}."
    reading = {
        "supported": f"all of the interval lies {side} {claim.margin:g}, as claimed",
        "contradicted": f"none of the interval reaches {side} {claim.margin:g}, where the claim needs it",
        "undecided": f"the interval lies on both sides of {claim.margin:g}",
    }[verdict]
    power = ""
    if verdict == "undecided" and detectable is not None:
        power = f"; {finding.n_prompts} prompts would show an effect of {detectable:.2f}"
    interval = f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"
    return f"{finding.words} is {interval} over {finding.n_prompts} prompts: {reading}{power}."
