"""The declared claims, each answered by one test and one rule."""

from __future__ import annotations

from typing import Any

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.claim_tests import TESTS, Evidence
from specstudy.analysis.correlations import holm
from specstudy.analysis.declarations import Declaration
from specstudy.analysis.verdicts import Finding, decide, detectable_effect, not_run, note, p_at_margin
from specstudy.records import Claim

CHAIN, SPEED = "chain", "speed"


def answer_claims(declared: list[Declaration], evidence: Evidence) -> list[Claim]:
    """One row a claim, in the order of declaration; Holm's adjustment runs within each family."""
    tested = [claim for claim in declared if claim.test["kind"] != CHAIN]
    findings = {claim.id: TESTS[claim.test["kind"]](claim, evidence) for claim in tested}
    adjusted = _adjusted(tested, findings)
    records = {
        claim.id: _as_record(
            claim,
            findings[claim.id],
            adjusted[claim.id],
            evidence.settings,
            evidence.busy if claim.family == SPEED else "",
        )
        for claim in tested
    }
    links = [records[claim.id] for claim in tested if claim.link]
    records |= {
        claim.id: _whole_chain(claim, links, evidence.settings) for claim in declared if claim.id not in records
    }
    return [records[claim.id] for claim in declared]


def _adjusted(claims: list[Declaration], findings: dict[str, Finding]) -> dict[str, float | None]:
    adjusted: dict[str, float | None] = {}
    for family in dict.fromkeys(claim.family for claim in claims):
        members = [claim for claim in claims if claim.family == family]
        p_values = holm([p_at_margin(claim, findings[claim.id].estimate) for claim in members])
        adjusted |= {claim.id: p for claim, p in zip(members, p_values, strict=True)}
    return adjusted


def _told_apart(claim: Declaration, settings: AnalysisSettings) -> dict[str, Any]:
    """What tells a description from a confirmation."""
    return {
        "declared": claim.declared.isoformat(),
        "seen_on": [*claim.seen_on],
        "is_confirmatory": not set(claim.seen_on) & set(settings.prompt_sets),
    }


def _as_record(
    claim: Declaration, finding: Finding, p_adjusted: float | None, settings: AnalysisSettings, busy: str
) -> Claim:
    """`busy` says why no speed is decided; the estimate is told all the same."""
    estimate, confidence = finding.estimate, settings.confidence
    verdict = decide(claim, estimate, p_adjusted, confidence)
    if busy and verdict != "not_run":
        verdict = "undecided"
    answered = finding if verdict != "not_run" else not_run(estimate.null_reason or "no interval")
    detectable = detectable_effect(claim, answered, confidence)
    return Claim(
        claim_id=claim.id,
        family=claim.family,
        statement=claim.statement,
        verdict=verdict,
        **estimate.columns(),
        p_adjusted=p_adjusted,
        direction=claim.direction,
        reference=claim.reference,
        margin=claim.margin,
        detectable_effect=detectable,
        n=finding.n_prompts,
        **_told_apart(claim, settings),
        note=note(claim, answered, verdict, detectable, busy),
    )


def _whole_chain(claim: Declaration, links: list[Claim], settings: AnalysisSettings) -> Claim:
    """The score of the chain: supported if every link is, contradicted if any link is, not run if any was not."""
    verdicts = [link.verdict for link in links]
    counts = [f"{verdicts.count(v)} {v.replace('_', ' ')}" for v in dict.fromkeys(verdicts)]
    decisive = next((v for v in ("contradicted", "not_run", "undecided") if v in verdicts), "supported")
    return Claim(
        claim_id=claim.id,
        family=claim.family,
        statement=claim.statement,
        verdict=decisive if links else "not_run",
        estimate=float(verdicts.count("supported")),
        ci_low=None,
        ci_high=None,
        p_adjusted=None,
        direction=claim.direction,
        reference=claim.reference,
        margin=claim.margin,
        detectable_effect=None,
        n=min((link.n for link in links), default=0),
        **_told_apart(claim, settings),
        note=f"Of the chain's {len(links)} links: {', '.join(counts)}.",
    )
