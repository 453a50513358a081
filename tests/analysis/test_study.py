from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from analysed import FAST, SMALL, analysed
from pandas.testing import assert_frame_equal
from statsmodels.stats.multitest import multipletests
from synthetic import Plan, make_tables, prompt_tables

from specstudy.analysis.correlations import holm
from specstudy.analysis.join import decoded_tokens
from specstudy.analysis.measures import ACCEPTANCE_MEASURES, CONTEXT_MEASURES
from specstudy.analysis.study import AnalysisResult, analyze
from specstudy.records import SUBSETS
from specstudy.tables.schema import to_table


@pytest.fixture
def result() -> AnalysisResult:
    return analysed()[0]


def test_every_pair_of_the_chain_is_there_once(result):
    keys = [(r.level, r.subset, r.x, r.y, r.method) for r in result.correlations]
    assert len(set(keys)) == len(keys)
    whole = [key for key in keys if key[:2] == ("prompt", "all") and key[4] == "spearman"]
    of_two_texts, of_one_text = len(ACCEPTANCE_MEASURES), 1
    assert len(whole) == len(CONTEXT_MEASURES) * (3 + of_two_texts) + 2 * (of_one_text + of_two_texts)
    subsets = {r.subset for r in result.correlations if r.level == "prompt"}
    categories = {"ambiguous", "code", "creative", "factual", "math"}
    assert subsets == categories | set(SUBSETS) - {"within_prompt"}
    assert {r.subset for r in result.correlations} == categories | set(SUBSETS)


def test_the_rows_fit_their_tables(result):
    assert to_table("correlations", result.correlations).num_rows == len(result.correlations)
    assert to_table("claims", result.claims).num_rows == len(result.claims)


def test_the_constant_measure_is_shown_as_such(result):
    records = [r for r in result.correlations if r.x == "context_health"]
    assert records
    assert {r.null_reason for r in records} == {"x is constant (10)"}
    assert all(r.estimate is None and r.p_adjusted is None for r in records)


def test_the_same_tables_give_the_same_answers_in_any_row_order(result):
    tables = {name: frame.sample(frac=1, random_state=1) for name, frame in make_tables(SMALL).items()}
    again = analyze(tables, FAST)
    for ours, theirs in zip(result.correlations, again.correlations, strict=True):
        assert ours.null_reason == theirs.null_reason
        assert ours.estimate == pytest.approx(theirs.estimate, abs=1e-12)
        assert ours.ci_low == pytest.approx(theirs.ci_low, abs=1e-9)
    assert_frame_equal(result.reliability, again.reliability)
    assert_frame_equal(result.by_category, again.by_category)


def test_the_same_order_gives_the_same_bits(result):
    again = analyze(make_tables(SMALL), FAST)
    assert again.correlations == result.correlations
    assert again.claims == result.claims


def test_holm_is_that_of_statsmodels_and_ignores_what_is_null():
    p_values = [0.04, None, 0.001, 0.2, None, 0.03]
    adjusted = holm(p_values)
    assert adjusted[1] is adjusted[4] is None
    expected = multipletests([p for p in p_values if p is not None], method="holm")[1]
    np.testing.assert_allclose([p for p in adjusted if p is not None], expected)
    assert holm([None]) == [None]


def test_adjustment_stays_within_level_subset_and_method(result):
    family = [r for r in result.correlations if (r.level, r.subset, r.method) == ("prompt", "all", "spearman")]
    assert [r.p_adjusted for r in family] == holm([r.p_value for r in family])


def test_several_gammas_are_kept_apart():
    result, _ = analysed(replace(SMALL, gammas=(2, 4)))
    assert {r.y for r in result.correlations if r.level == "prompt" and r.y.startswith("alpha@")} == {
        "alpha@gamma2",
        "alpha@gamma4",
    }
    assert result.primary.gamma == 4
    assert set(result.by_round_index["condition"]) == {"gamma 2", "gamma 4"}
    claim = next(c for c in result.claims if c.claim_id == "speedup_above_one")
    assert claim.estimate == pytest.approx(result.prompts[result.at("speedup")].median())


def test_acceptance_by_place_counts_tested_tokens_only():
    result, tables = analysed()
    frame = result.by_round_index
    assert frame["n"].sum() == tables["spec_runs"]["n_tested"].sum()
    first = tables["spec_tokens"]
    first = first[(first["index"] == 0) & (first["kind"] == "draft")]
    assert frame["value"][0] == pytest.approx((first["outcome"] == "accepted").mean())


def test_bins_hold_every_token_and_follow_the_planted_slope():
    result, tables = analysed(Plan(n_answer_tokens=60))
    frame = result.by_draft_entropy
    decoded = frame[frame["source"] == "decoded"]
    assert decoded["n"].sum() == len(decoded_tokens(tables))
    assert decoded["value"].is_monotonic_decreasing
    assert frame[frame["source"] == "tested"]["n"].sum() == tables["spec_runs"]["n_tested"].sum()


@pytest.mark.parametrize(
    "plan",
    [
        Plan(n_per_category=1, n_answer_tokens=4, n_content_tokens=6),
        Plan(n_per_category=1, categories=("code",), n_answer_tokens=2),
        Plan(n_per_category=3, categories=("code",), n_answer_tokens=8),
        Plan(n_per_category=2, n_answer_tokens=8, gammas=(1,), repetitions=2),
    ],
)
def test_small_studies_end_well(plan):
    result, _ = analysed(plan)
    to_table("correlations", result.correlations)
    to_table("claims", result.claims)
    assert all((r.estimate is None) == (r.null_reason is not None) for r in result.correlations)


@pytest.mark.parametrize("kept", [(), ("prefill",), ("decode",), ("spec",), ("prefill", "decode")])
def test_any_stage_may_be_missing(kept):
    result, _ = analysed(stages=kept)
    to_table("correlations", result.correlations)
    assert len(result.prompts) == (15 if kept else 0)


def test_measures_that_are_null_throughout_are_named():
    tables = make_tables(Plan(n_per_category=2, n_answer_tokens=12))
    for column in ("draft_entropy_bits", "expected_accept"):
        tables["decode_tokens"][column] = np.nan
    tables["prefill_prompts"]["context_health_soft"] = np.nan
    result = analyze(tables, FAST)
    assert result.by_draft_entropy.empty
    record = result.find("prompt", "all", "context_health_soft", "mean_entropy_bits")
    assert record.null_reason == "0 independent prompts with both measures; 3 are needed"


def test_a_confounder_is_seen_through():
    """Category drives both measures and nothing holds inside it: the raw correlation is strong, the held one is not."""
    plan = Plan(n_per_category=20, n_answer_tokens=30, context_effect=0, category_effect=1)
    tables = prompt_tables(plan)
    prompts = tables["prefill_prompts"]
    order = {"factual": 8.0, "code": 7.5, "math": 7.0, "creative": 6.0, "ambiguous": 5.0}
    noise = np.random.default_rng(0).normal(0, 0.3, len(prompts))
    prompts["context_health_soft"] = prompts["category"].map(order) + noise
    result = analyze(tables, FAST)
    raw = result.find("prompt", "all", "context_health_soft", "mean_entropy_bits")
    held = result.find("prompt", "within_category", "context_health_soft", "mean_entropy_bits")
    assert raw.ci_high < -0.6
    assert held.ci_low < 0 < held.ci_high


def test_a_planted_effect_is_recovered_where_category_hides_it():
    result = analyze(prompt_tables(Plan(n_per_category=20, n_answer_tokens=30, context_effect=-0.4)), FAST)
    held = result.find("prompt", "within_category_given_length", "context_health_soft", "mean_entropy_bits", "pearson")
    assert held.ci_high < -0.5
