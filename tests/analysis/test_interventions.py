"""Interventions: links, mixed models and claims, on tables with known effects and on tables without any."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from synthetic import Plan, make_tables
from synthetic_versions import POISONS, Shift, version_tables

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.interventions import Interventions, analyze_interventions
from specstudy.analysis.links import link_verdicts
from specstudy.analysis.study import AnalysisResult, analyze
from specstudy.condition import STUDY_CONDITION
from specstudy.records import Claim, LinkVerdict
from specstudy.report.chapters.interventions import FAMILIES
from specstudy.tables.schema import to_table

FAST = AnalysisSettings(bootstrap_samples=300)
PLAN = Plan(n_per_category=6, n_answer_tokens=12)
POISON = Shift(health=-0.5, entropy_bits=0.4, acceptance=-0.15)
LONGER = Shift(health=-0.2, entropy_bits=0.2)


def tables(which: str, **shifts: Shift) -> dict[str, pd.DataFrame]:
    return version_tables(which, shifts, PLAN)


def found(which: str, **shifts: Shift) -> Interventions:
    return analyze_interventions(tables(which, **shifts), STUDY_CONDITION, FAST)


def links(told: Interventions, kind: str) -> dict[str, LinkVerdict]:
    return {row.link: row for row in told.links if row.kind == kind}


@pytest.fixture(scope="module")
def poisoned() -> Interventions:
    return found("poisoned", related=LONGER, irrelevant=POISON, contradiction=replace(POISON, acceptance=0.15))


def test_a_link_is_read_from_both_of_its_ends(poisoned: Interventions) -> None:
    read = {kind: {name: row.reading for name, row in links(poisoned, kind).items()} for kind in POISONS}
    assert read["irrelevant"] == {
        "attention to entropy": "as_claimed",
        "entropy to acceptance": "as_claimed",
        "attention to acceptance": "as_claimed",
    }
    assert read["contradiction"]["attention to entropy"] == "as_claimed"
    assert read["contradiction"]["entropy to acceptance"] == "other_way"
    # The control itself spreads attention less evenly and writes less surely: this one moves both back.
    assert read["shuffled"]["attention to entropy"] == "as_claimed"
    assert read["shuffled"]["attention to acceptance"] == "not_shown"
    assert {row.reading for row in links(poisoned, "moved").values()} == {"not_moved"}
    assert {row.kind for row in poisoned.links} == {*POISONS, "moved"}, "controls are compared with, not asked"


def test_a_link_says_what_moved_by_how_much_and_what_the_control_did(poisoned: Interventions) -> None:
    row = links(poisoned, "irrelevant")["attention to entropy"]
    assert (row.dose, row.n) == (2, 30)
    assert row.moved_difference == pytest.approx(2 * (-0.5 + 0.2), abs=0.1)
    assert row.watched_difference == pytest.approx(2 * (0.4 - 0.2), abs=0.1)
    assert row.control_difference == pytest.approx(0.4, abs=0.1)
    assert row.watched_ci_low is not None
    assert row.watched_ci_low < row.watched_difference


def test_hiding_a_position_moves_attention_by_itself() -> None:
    told = found("hidden", hidden_first=Shift(entropy_bits=0.6, acceptance=-0.3))
    first = links(told, "hidden_first")
    assert {row.reading for row in first.values()} == {"as_claimed"}
    assert first["attention to entropy"].moved is None
    boundary = links(told, "hidden_boundary")
    assert boundary["attention to entropy"].reading == "not_shown"
    assert boundary["entropy to acceptance"].reading == "not_moved"
    assert {row.kind for row in told.links} == {
        f"hidden_{where}{whom}" for where in ("first", "boundary") for whom in ("", "_from_both")
    }


def test_what_was_not_measured_says_so() -> None:
    without = tables("poisoned", irrelevant=POISON)
    del without["spec_runs"]
    told = analyze_interventions(without, None, FAST)
    read = {name: row.reading for name, row in links(told, "irrelevant").items()}
    assert read["entropy to acceptance"] == read["attention to acceptance"] == "not_measured"
    assert read["attention to entropy"] == "as_claimed"


@pytest.fixture(scope="module")
def temperatures() -> Interventions:
    return found(
        "temperatures",
        temperature=Shift(entropy_bits=0.8, acceptance=-0.2),
        temperature_of_verifier=Shift(entropy_bits=0.8, acceptance=-0.4),
    )


def test_the_mixed_model_finds_the_slope_and_is_that_of_the_library(temperatures: Interventions) -> None:
    models = {(row.kinds, row.y): row for row in temperatures.models}
    assert set(models) == {
        (kinds, y)
        for kinds in ("temperature", "temperature_of_verifier")
        for y in ("alpha_expected", "mean_expected_accept")
    }
    row = models["temperature", "alpha_expected"]
    assert (row.n, row.n_prompts) == (120, 30)
    assert row.slope is not None
    versions = temperatures.versions[temperatures.versions["kind"].isin(["unaltered", "temperature"])]
    x = versions["mean_sampling_entropy_bits"]
    frame = pd.DataFrame(
        {"x": x - x.groupby(versions["original_id"]).transform("mean"), "y": versions["alpha_expected"]}
    )
    fit = smf.mixedlm("y ~ x", frame, groups=versions["original_id"]).fit()
    assert row.slope == pytest.approx(fit.params["x"], rel=1e-6)
    assert row.between_prompts_sd == pytest.approx(np.sqrt(fit.cov_re.iloc[0, 0]), rel=1e-3)
    assert row.residual_sd == pytest.approx(np.sqrt(fit.scale), rel=1e-3)
    assert row.slope == pytest.approx(-0.125, abs=0.04)
    assert row.ci_low < row.slope < row.ci_high < 0


def test_differences_between_prompts_and_of_controls_are_no_part_of_a_slope() -> None:
    """Longer controls have more entropy and more acceptance, and so have some originals; versions move nothing."""
    told = found(
        "poisoned", related=Shift(entropy_bits=3.0, acceptance=0.8), unmoved=Shift(entropy_bits=4, acceptance=1)
    )
    poisons = dict.fromkeys((*POISONS, "related"), Shift(entropy_bits=3.0, acceptance=0.8))
    moved = dict.fromkeys(("moved", "unmoved"), Shift())
    (row,) = [m for m in found("poisoned", **poisons, **moved).models if m.x == "mean_entropy_bits"]
    assert row.slope == pytest.approx(0.0, abs=0.1)
    (confounded,) = [m for m in told.models if m.x == "mean_entropy_bits"]
    assert confounded.slope is not None
    assert confounded.slope > 0.1, "where versions differ from their controls, it shows"


def test_few_prompts_have_no_slope() -> None:
    one = version_tables("temperatures", {}, Plan(n_per_category=1, categories=("code", "math"), n_answer_tokens=6))
    rows = analyze_interventions(one, STUDY_CONDITION, FAST).models
    assert rows
    assert {row.slope for row in rows} == {row.residual_sd for row in rows} == {None}
    why = "mean_sampling_entropy_bits varies in 2 independent prompts; 3 are needed"
    assert {row.null_reason for row in rows} == {why}


def claims(result: AnalysisResult) -> dict[str, Claim]:
    return {claim.claim_id: claim for claim in result.claims if claim.family in FAMILIES}


def claims_from(measured: dict[str, pd.DataFrame]) -> dict[str, Claim]:
    """Answered from the tables that versions are compared in, which saves most of an analysis."""
    read = ("prompt_versions", "lowered_keys", "prefill_prompts", "decode_runs", "decode_tokens", "spec_runs")
    return claims(analyze({name: measured[name] for name in read}, FAST))


def test_claims_about_moved_links_are_answered_from_the_versions() -> None:
    shift = Shift(health=-0.5, entropy_bits=0.5, acceptance=0.0)
    told = claims_from(tables("poisoned", related=LONGER, **dict.fromkeys(POISONS, shift)))
    verdicts = {name: claim.verdict for name, claim in told.items()}
    assert verdicts.pop("poisoned_contexts_gather_attention") == "supported"
    assert verdicts.pop("poisoned_contexts_raise_entropy") == "supported"
    assert verdicts.pop("poisoned_contexts_lower_acceptance") == "contradicted"
    assert set(verdicts.values()) == {"not_run"}
    raised = told["poisoned_contexts_raise_entropy"]
    assert raised.estimate == pytest.approx(2 * (0.5 - 0.2), abs=0.1)
    assert raised.n == 30
    of_the_control = re.search(r"beyond what the control does \((.*?)\)", raised.note)
    assert of_the_control
    assert float(of_the_control[1]) == pytest.approx(2 * 0.2, abs=0.1)
    assert "experiment=temperatures" in told["mismatched_temperatures_lower_acceptance"].note
    assert "experiment=sinks_lowered" in told["lowered_sinks_lower_entropy"].note


@pytest.mark.parametrize(
    ("which", "kind", "acceptance", "claim_id"),
    [
        ("lowered", "structural_lowered", 0.4, "lowered_sinks_raise_acceptance"),
        ("lowered", "structural_lowered_in_both", 0.4, "lowered_sinks_of_both_raise_acceptance"),
        ("temperatures", "temperature", -0.4, "entropy_of_both_lowers_acceptance"),
        ("temperatures", "temperature_of_verifier", -0.4, "mismatched_temperatures_lower_acceptance"),
    ],
)
def test_each_claim_speaks_of_its_own_kind(which: str, kind: str, acceptance: float, claim_id: str) -> None:
    told = claims_from(tables(which, **{kind: Shift(entropy_bits=0.5, acceptance=acceptance)}))
    assert {name for name, claim in told.items() if claim.verdict == "supported" and "acceptance" in name} == {claim_id}


def test_temperatures_are_compared_by_both_ends_or_from_end_to_end() -> None:
    """A dose is -0.2 of acceptance; doses are -1, 1 and 2."""
    shift = Shift(acceptance=-0.4)
    told = claims_from(tables("temperatures", temperature=shift, temperature_of_verifier=shift))
    of_both, of_verifier = (
        told[name] for name in ("entropy_of_both_lowers_acceptance", "mismatched_temperatures_lower_acceptance")
    )
    assert of_both.estimate == pytest.approx(3 * -0.2, abs=0.05)
    assert of_verifier.estimate == pytest.approx((0.2 - 0.4) / 2, abs=0.05)
    assert of_both.n == of_verifier.n == 30
    measured = tables("temperatures", temperature=shift)
    measured["prompt_versions"] = measured["prompt_versions"].query("dose >= 0")
    assert claims_from(measured)["entropy_of_both_lowers_acceptance"].verdict == "not_run"


def test_temperatures_below_the_studys_own_are_asked_at_the_lowest_alone(temperatures: Interventions) -> None:
    """Doses -1, 1 and 2 turned round, the one above 0 left out: -1 and -2."""
    below = temperatures.versions.assign(dose=-temperatures.versions["dose"]).query("dose <= 0")
    effects = [replace(row, dose=-row.dose) for row in temperatures.effects]
    assert {row.dose for row in link_verdicts(below, effects, FAST)} == {-2}


def test_temperatures_both_ways_are_asked_at_both_ends(temperatures: Interventions) -> None:
    asked = {(row.kind, row.dose): row.reading for row in temperatures.links}
    assert set(asked) == {(kind, dose) for kind in ("temperature", "temperature_of_verifier") for dose in (-1, 2)}
    assert asked["temperature", 2] == asked["temperature", -1] == "as_claimed", (
        "cooler is less entropy, more acceptance"
    )


@pytest.fixture(scope="module")
def lowered() -> Interventions:
    return found(
        "lowered",
        content_lowered=Shift(entropy_bits=0.1, moved=0.05),
        structural_lowered=Shift(entropy_bits=0.5, acceptance=0.3, moved=0.2),
    )


def test_lowered_keys_are_asked_by_what_was_moved_beyond_the_control(lowered: Interventions) -> None:
    read = links(lowered, "structural_lowered")
    row = read["attention to entropy"]
    assert (row.moved, row.dose) == ("mass_moved", 2)
    assert row.moved_difference == pytest.approx(2 * 0.15, abs=0.1)
    assert row.watched_difference == pytest.approx(2 * 0.4, abs=0.1)
    assert row.control_difference == pytest.approx(2 * 0.1, abs=0.1)
    assert row.reading == "other_way", "the series would have entropy fall"
    assert read["attention to acceptance"].reading == "as_claimed"
    assert {row.kind for row in lowered.links} == {"structural_lowered", "structural_lowered_in_both"}


def test_the_verifiers_mass_is_what_counts_and_the_unaltered_version_moves_none(lowered: Interventions) -> None:
    versions = lowered.versions
    assert (versions.loc[versions["kind"] == "unaltered", "mass_moved"] == 0).all()
    changed = versions[versions["lowered"].notna()]
    assert (changed["mass_before"] == 0.5).all()
    assert changed["mass_moved"].to_numpy() == pytest.approx((0.5 - changed["mass_after"]).to_numpy())


def test_entropy_has_a_slope_on_the_mass_that_moved(lowered: Interventions) -> None:
    models = {(row.kinds, row.y): row for row in lowered.models}
    kinds = set(lowered.versions["kind"]) - {"unaltered"}
    assert set(models) == {(kind, y) for kind in kinds for y in ("mean_entropy_bits", "mean_expected_accept")}
    row = models["structural_lowered", "mean_entropy_bits"]
    assert (row.n, row.n_prompts) == (90, 30)
    assert row.slope == pytest.approx(1.8, abs=0.5), "2.5, less what noise in the mass takes"


def test_an_ordinary_study_has_no_rows_and_its_other_claims_do_not_change() -> None:
    plain, versions = analyze(make_tables(PLAN), FAST), analyze(version_tables("hidden", {}, PLAN, noise=0.0), FAST)
    assert plain.interventions.effects == plain.interventions.links == plain.interventions.models == []
    assert {claim.verdict for claim in claims(plain).values()} == {"not_run"}
    others = [[c for c in result.claims if c.family not in FAMILIES] for result in (plain, versions)]
    assert others[0] == others[1]


def test_the_rows_fit_their_tables(
    poisoned: Interventions, temperatures: Interventions, lowered: Interventions
) -> None:
    for told in (poisoned, temperatures, lowered):
        assert to_table("version_effects", told.effects).num_rows == len(told.effects)
        assert to_table("link_verdicts", told.links).num_rows == len(told.links)
        assert to_table("version_models", told.models).num_rows == len(told.models)
