from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from analysed import SMALL, analysed
from synthetic import Plan, make_tables, prompt_tables

from specstudy.analysis.bootstrap import AnalysisSettings, Estimate
from specstudy.analysis.claims import CHAIN
from specstudy.analysis.declarations import Declaration, declarations, declarations_sha256
from specstudy.analysis.join import Tables
from specstudy.analysis.measures import label
from specstudy.analysis.study import analyze
from specstudy.analysis.verdicts import decide, detectable_correlation
from specstudy.condition import Condition
from specstudy.records import Claim

FAST = AnalysisSettings(bootstrap_samples=400)
KINDS = {
    *(
        "correlation",
        "mean",
        "median",
        "difference",
        "ordering",
        "slope",
        "ratio",
        "token_mean",
        "paired",
        "version",
        "version_ends",
        "version_range",
        "logistic",
        "predictor",
        "attention_link",
        "attention_head",
        "attention_gain",
    ),
    CHAIN,
}


def declared(direction: str, margin: float, reference: float = 0.0) -> Declaration:
    return Declaration(
        "id", "family", "It is so.", "nobody", {"kind": "mean"}, direction, margin, date(2026, 1, 1), (), reference
    )


def claims_from(tables: Tables) -> dict[str, Claim]:
    return {claim.claim_id: claim for claim in analyze(tables, FAST).claims}


def claims_of_a_small_study(plan: Plan = SMALL, stages: tuple[str, ...] | None = None) -> dict[str, Claim]:
    return {claim.claim_id: claim for claim in analysed(plan, stages)[0].claims}


@pytest.mark.parametrize(
    ("low", "high", "direction", "margin", "verdict"),
    [
        (0.2, 0.6, "greater", 0.1, "supported"),
        (-0.05, 0.08, "equivalent", 0.1, "supported"),
        (-0.15, 0.08, "equivalent", 0.1, "undecided"),
        (0.12, 0.5, "equivalent", 0.1, "contradicted"),
        (-0.5, -0.12, "equivalent", 0.1, "contradicted"),
        (-0.5, 0.5, "equivalent", 0.1, "undecided"),
        (0.05, 0.6, "greater", 0.1, "undecided"),
        (-0.2, 0.08, "greater", 0.1, "contradicted"),
        (-0.9, -0.5, "greater", 0.1, "contradicted"),
        (-0.6, -0.2, "less", 0.1, "supported"),
        (-0.6, -0.05, "less", 0.1, "undecided"),
        (-0.08, 0.2, "less", 0.1, "contradicted"),
        (None, None, "greater", 0.1, "not_run"),
    ],
)
def test_the_rule(low, high, direction, margin, verdict):
    claim = declared(direction, margin)
    assert decide(claim, Estimate(50, 0.3, low, high), 0.04, 0.95) == verdict
    # Holm's adjustment can only take a decision back.
    assert decide(claim, Estimate(50, 0.3, low, high), 0.06, 0.95) in ("undecided", "not_run")


def test_the_rule_is_about_the_reference():
    assert decide(declared("greater", 0.1, 1.0), Estimate(50, 1.2, 1.12, 1.3), 0.04, 0.95) == "supported"
    assert decide(declared("greater", 0.1, 1.0), Estimate(50, 1.2, 1.02, 1.3), 0.04, 0.95) == "undecided"
    assert decide(declared("equivalent", 0.1, 1.0), Estimate(50, 1.0, 0.95, 1.05), 0.04, 0.95) == "supported"


def test_the_hash_is_that_of_the_file():
    assert len(declarations_sha256()) == 64
    assert declarations_sha256() == declarations_sha256()


def test_declarations_are_well_formed():
    claims = declarations()
    assert len({claim.id for claim in claims}) == len(claims)
    assert [claim.link for claim in claims if claim.link] == [
        "attention to verifier entropy",
        "attention to draft entropy",
        "verifier entropy to acceptance",
        "draft entropy to acceptance",
        "attention to acceptance",
    ]
    for claim in claims:
        assert claim.test["kind"] in KINDS
        assert claim.direction in ("greater", "less", "equivalent")
        measures = [claim.test[key] for key in ("x", "y", "measure") if key in claim.test]
        assert all(label(name) != name for name in measures), f"{claim.id} names an unknown measure"
        assert claim.margin > 0 or claim.test["kind"] == CHAIN


def test_planted_effects_are_found():
    claims = claims_from(make_tables(Plan(n_per_category=30, n_answer_tokens=60, context_effect=-0.6)))
    for name in (
        *("attention_to_entropy", "entropy_to_acceptance", "attention_to_acceptance", "whole_chain"),
        *("attention_to_entropy_as_observed", "entropy_to_acceptance_as_observed"),
        *("first_position_is_sink", "boundary_beyond_content_by_received", "entropy_follows_category"),
        *("draft_entropy_predicts_rejection", "structured_accepted_more", "speedup_above_one"),
    ):
        assert claims[name].verdict == "supported", claims[name].note
        assert claims[name].n == 150


def test_opposite_effects_contradict():
    plan = Plan(n_per_category=30, n_answer_tokens=60, context_effect=0.6, entropy_effect=0.5, category_effect=-1)
    claims = claims_from(make_tables(replace(plan, speedup=0.8)))
    # Two turned links make a product that points the claimed way.
    assert claims["attention_to_acceptance"].verdict == "supported"
    for name in (
        *("attention_to_entropy", "entropy_to_acceptance", "whole_chain", "draft_entropy_predicts_rejection"),
        *("speedup_above_one", "entropy_follows_category"),
    ):
        assert claims[name].verdict == "contradicted", name
    assert "opposite sign" in claims["speedup_above_one"].note


def test_no_effect_is_a_finding_and_not_a_large_p():
    tables = prompt_tables(Plan(n_per_category=400, n_answer_tokens=4, context_effect=0.0))
    claim = claims_from(tables)["attention_to_entropy_as_observed"]
    assert claim.verdict == "contradicted"
    assert "equivalent to no effect" in claim.note
    assert claim.p_adjusted < 0.05


def test_claims_on_attention_while_writing_are_answered_where_it_was_recorded():
    """The plan's sink mass falls with the verifier's entropy; the draft's knows all that it knows of acceptance."""
    recorded = claims_from(make_tables(replace(SMALL, n_answer_tokens=64, heads=2)))
    assert recorded["sink_mass_falls_with_entropy"].verdict == "supported"
    assert recorded["sink_mass_rises_with_entropy"].verdict == "contradicted"
    assert "opposite sign" in recorded["sink_mass_rises_with_entropy"].note
    assert recorded["attention_adds_to_draft_entropy"].verdict == "contradicted"
    of_heads = recorded["previous_mass_falls_with_entropy"]
    assert of_heads.verdict in ("contradicted", "undecided")
    assert of_heads.n == 7  # 15 prompts, of which 8 choose
    of_family = [claim for claim in recorded.values() if claim.family == "writing"]
    assert len(of_family) == 7
    assert all(claim.is_confirmatory for claim in of_family)


def test_older_runs_say_what_would_record_attention_while_writing():
    tables = {name: frame for name, frame in make_tables(SMALL).items() if not name.endswith("attention_steps")}
    claims = [claim for claim in claims_from(tables).values() if claim.family == "writing"]
    assert {claim.verdict for claim in claims} == {"not_run"}
    assert ["attention_heads=true" in claim.note for claim in claims].count(True) == 1
    assert all("make study" in claim.note for claim in claims)


def test_what_was_not_measured_is_not_run_and_says_why():
    claims = claims_of_a_small_study(stages=("prefill", "decode"))
    assert claims["attention_to_entropy"].verdict in ("supported", "undecided")
    for name in ("entropy_to_acceptance_across_texts", "speedup_above_one", "structured_accepted_more"):
        claim = claims[name]
        assert claim.verdict == "not_run"
        assert (claim.estimate, claim.ci_low, claim.detectable_effect) == (None, None, None)
        assert claim.note.startswith("Not answered: ")
        assert claim.note.endswith(".")


def test_claims_on_sampling_need_a_sweep_and_are_answered_by_one():
    alone = claims_of_a_small_study()
    for key in ("temperature", "top_p"):
        assert alone[f"{key}_barely_matters"].verdict == "not_run"
        assert f"of {key}" in alone[f"{key}_barely_matters"].note
    grid = tuple(Condition(4, "model", "none", heat, nucleus) for heat in (0.01, 0.7, 1.0) for nucleus in (0.8, 1.0))
    plan = Plan(n_per_category=8, n_answer_tokens=48, conditions=grid, temperature_effect=-2.0)
    swept = claims_from(make_tables(plan))
    assert swept["temperature_barely_matters"].verdict == "contradicted", swept["temperature_barely_matters"].note
    assert swept["top_p_barely_matters"].verdict == "supported", swept["top_p_barely_matters"].note


def test_a_constant_measure_is_named_in_the_reason():
    tables = prompt_tables(SMALL)
    tables["prefill_prompts"]["context_health_soft"] = 7.0
    claims = claims_from(tables)
    assert claims["attention_to_entropy_as_observed"].note == "Not answered: soft context health is constant (7)."


def test_first_token_attention_is_that_from_the_last_prompt_positions():
    tables = make_tables(Plan(n_per_category=4, n_answer_tokens=12))
    tokens = tables["prefill_tokens"]
    first = (tokens["position"] == 0).to_numpy()
    lengths = tokens.groupby("prompt_id")["position"].max().loc[tokens["prompt_id"]].to_numpy()
    tokens["attention_window"] = np.where(first, 1 / lengths, tokens["attention_window"])
    tables["prefill_heads"]["first_token_attention"] = 0.5
    claims = claims_from(tables)
    claim = claims["first_token_attention_falls_with_length"]
    assert claim.estimate == pytest.approx(-1)
    assert claim.verdict == "supported"
    # Attention of 1 / S: its logit is that of a key among S others.
    assert claims["first_token_gains_on_average_key"].verdict != "supported"


def test_a_category_that_is_missing_is_named():
    claims = claims_from(prompt_tables(Plan(categories=("code", "math"), n_answer_tokens=30)))
    assert claims["entropy_follows_category"].verdict == "not_run"
    assert "factual, creative, ambiguous" in claims["entropy_follows_category"].note
    assert claims["attention_to_entropy"].verdict != "not_run"


def test_an_undecided_claim_says_what_it_could_have_shown():
    claims = claims_of_a_small_study(replace(SMALL, context_effect=-0.05))
    claim = claims["attention_to_entropy_as_observed"]
    assert claim.verdict == "undecided"
    assert claim.detectable_effect == pytest.approx(detectable_correlation(claim.ci_low, claim.ci_high, 0.95, 0.1))
    assert f"{-claim.detectable_effect:.2f}".replace("-", "\N{MINUS SIGN}") in claim.note


def test_detectable_correlation_is_detected_at_the_stated_power():
    n, rng = 50, np.random.default_rng(0)
    reach = np.tanh(1.96 / np.sqrt(n - 3))
    effect = detectable_correlation(-reach, reach, 0.95)
    assert effect == pytest.approx(np.tanh((1.96 + 0.8416) / np.sqrt(47)), abs=1e-4)
    x = rng.normal(size=(4000, n))
    y = effect * x + np.sqrt(1 - effect**2) * rng.normal(size=x.shape)
    x, y = (v - v.mean(axis=1, keepdims=True) for v in (x, y))
    r = (x * y).sum(axis=1) / np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    shown = np.abs(np.arctanh(r)) * np.sqrt(n - 3) > 1.96
    assert shown.mean() == pytest.approx(0.8, abs=0.03)
