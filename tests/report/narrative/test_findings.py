from __future__ import annotations

from dataclasses import replace

from analysed import SMALL, analysed

from specstudy.analysis.declarations import declarations
from specstudy.report.narrative import findings, overview
from specstudy.report.style import number


def test_every_claim_that_is_told_is_declared() -> None:
    assert {*findings.BEST_KNOWN, findings.WITHIN_CLAIM} <= {declared.id for declared in declarations()}


def test_links_on_one_text_come_first_and_only_what_is_decided_is_told() -> None:
    result, _ = analysed(replace(SMALL, n_per_category=6))
    told = findings.findings(result)
    assert len(told) == findings.MOST
    links = {claim.statement.rstrip("."): claim for claim in result.claims if claim.family == "chain"}
    first = next(claim for statement, claim in links.items() if statement in told[0])
    assert first.verdict == "supported"
    assert f"{number(first.estimate)} [" in told[0]
    undecided = [claim.statement.rstrip(".") for claim in result.claims if claim.verdict in ("undecided", "not_run")]
    assert not any(statement in sentence for statement in undecided for sentence in told)


def test_more_findings_than_are_wanted_are_not_told() -> None:
    result, _ = analysed(replace(SMALL, n_per_category=6))
    everything = findings.findings(result, most=100)
    assert findings.findings(result, most=2) == everything[:2]
    assert len(everything) == len(set(everything)) > findings.MOST


def test_a_run_that_sweeps_gamma_leads_with_the_fastest() -> None:
    result, _ = analysed(replace(SMALL, gammas=(1, 4)))
    speeds = {c: result.comparison.measures[c, "speedup"].estimate or 0.0 for c in result.gammas}
    fastest = max(speeds, key=lambda condition: speeds[condition])
    assert findings.findings(result)[0].startswith(f"Of 2 conditions, gamma {fastest.gamma} has the highest")
    assert number(speeds[fastest]) in findings.findings(result)[0]


def test_a_sweep_on_a_busy_machine_decides_nothing() -> None:
    result, _ = analysed(replace(SMALL, gammas=(1, 4), load_average=4.0))
    assert "busy" in findings.findings(result)[0]


def test_an_intervention_that_was_run_comes_before_the_links() -> None:
    result, _ = analysed(versions="poisoned")
    decided = [c for c in result.claims if c.family == "interventions" and c.verdict in ("supported", "contradicted")]
    first = findings.findings(result)[0]
    assert any(claim.statement.rstrip(".") in first for claim in decided)


def test_a_speed_that_was_not_timed_is_not_called_unmeasured_decoding() -> None:
    result, _ = analysed()
    without = result.by_category[result.by_category["measure"] != result.at("speedup")]
    assert "speed of" in overview.speed_sentence(replace(result, by_category=without))
