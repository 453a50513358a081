"""Settings side by side: derived measures by hand, which pairs are compared, and planted effects found again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from analysed import SMALL, analysed
from synthetic import Plan, make_tables

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.condition_comparison import (
    ConditionComparison,
    comparable_pairs,
    compare_conditions,
    condition_values,
)
from specstudy.analysis.measures import condition_suffixes, measures_in
from specstudy.analysis.study import analyze
from specstudy.condition import Condition
from specstudy.tables.schema import check_unique, to_table

FAST = AnalysisSettings(bootstrap_samples=300)
FIXED = Condition(4, "model", "none", 0.7, 0.9)
STOPPED = replace(FIXED, stop="entropy", stop_threshold=0.2)


def compared(tables: dict[str, pd.DataFrame], *conditions: Condition) -> ConditionComparison:
    return compare_conditions(tables, condition_suffixes(list(conditions)), list(conditions), FAST)


def one_run(**changes: object) -> dict[str, pd.DataFrame]:
    runs = make_tables(Plan(n_per_category=1, n_answer_tokens=8, gammas=(2,)))["spec_runs"].head(1)
    known = {"alpha": 0.5, "n_proposed": 10, "n_tested": 6, "n_tokens": 8, "speedup": 1.1, "acceptance_rate": 0.3}
    known |= {"cost_ratio_flops": 0.05, "cost_ratio_time": 0.1, "theoretical_speedup_full": 1.4}
    return {"spec_runs": runs.assign(**(known | changes))}


def test_derived_measures_by_hand() -> None:
    values = condition_values(one_run(), replace(FIXED, gamma=2)).iloc[0]
    assert values["tokens_per_round_expected"] == 1.75
    assert values["proposed_per_token"] == 1.25
    assert values["untested_share"] == 0.4
    assert values["theoretical_speedup_full_error"] == pytest.approx(0.3)
    # accepted / proposed in the formula: (1 + .3 + .09) / (2 * .05 + 1)
    assert values["theoretical_speedup_acceptance_rate"] == pytest.approx(1.39 / 1.1)
    # 1 + a + a^2 = 2c + 1; with all costs a round takes 1.75 / 1.4 = 1.25 steps.
    assert values["breakeven_alpha_flops"] == pytest.approx((np.sqrt(1.4) - 1) / 2)
    assert values["breakeven_alpha_time"] == pytest.approx((np.sqrt(1.8) - 1) / 2)
    assert values["breakeven_alpha_full"] == pytest.approx((np.sqrt(2) - 1) / 2)


def test_without_drafts_there_are_no_rates() -> None:
    nothing = one_run(n_proposed=0, n_tested=0, alpha=np.nan, acceptance_rate=np.nan, theoretical_speedup_flops=np.nan)
    values = condition_values(nothing, replace(FIXED, gamma=2)).iloc[0]
    assert values["proposed_per_token"] == 0
    undefined = ["untested_share", "alpha", "tokens_per_round_expected", "breakeven_alpha_flops"]
    assert values[undefined].isna().all()


def test_a_break_even_that_some_prompts_never_reach_has_no_mean() -> None:
    tables = make_tables(Plan(n_per_category=2, n_answer_tokens=8))
    runs = tables["spec_runs"]
    costs = np.where(runs["prompt_id"] == "code-01", 1.2, 0.1)
    row = compared({"spec_runs": runs.assign(cost_ratio_time=costs)}, FIXED).measures[FIXED, "breakeven_alpha_time"]
    assert (row.estimate, row.null_reason) == (None, "even alpha = 1 does not pay on 1 prompts")


def test_drafts_that_may_be_shorter_have_no_theory() -> None:
    found = compared(
        make_tables(Plan(n_per_category=2, n_answer_tokens=8, conditions=(FIXED, STOPPED))), FIXED, STOPPED
    )
    theories = ("tokens_per_round_expected", "theoretical_speedup_acceptance_rate", "breakeven_alpha_flops")
    assert all(found.measures[STOPPED, name].estimate is None for name in theories)
    assert all(found.measures[STOPPED, name].null_reason for name in theories)
    assert all(found.measures[FIXED, name].estimate is not None for name in theories)


def test_without_a_baseline_there_is_no_speedup_but_acceptance() -> None:
    tables = make_tables(Plan(n_per_category=2, n_answer_tokens=8))
    relative = ["speedup", "theoretical_speedup_time", "theoretical_speedup_full", "cost_ratio_time"]
    tables["spec_runs"] = tables["spec_runs"].assign(**dict.fromkeys(relative, np.nan))
    found = compared(tables, FIXED)
    empty = [*relative, "theoretical_speedup_flops_error", "breakeven_alpha_time", "breakeven_alpha_full"]
    assert {found.measures[FIXED, name].estimate for name in empty} == {None}
    assert all(found.measures[FIXED, name].null_reason for name in empty)
    assert found.theory_errors["value"].isna().all()
    assert found.measures[FIXED, "alpha_expected"].ci_low is not None


def test_settings_are_compared_if_they_differ_in_one_thing() -> None:
    hot, narrow = replace(FIXED, temperature=1.0), replace(FIXED, top_p=0.5)
    lookup, longer = replace(FIXED, proposer="prompt_lookup"), replace(STOPPED, gamma=8)
    assert comparable_pairs([STOPPED, FIXED]) == [(STOPPED, FIXED)]
    assert comparable_pairs([longer, FIXED]) == [(longer, FIXED)]
    assert comparable_pairs([lookup, FIXED]) == [(lookup, FIXED)]
    assert comparable_pairs([replace(hot, top_p=0.5), FIXED]) == [(replace(hot, top_p=0.5), FIXED)]
    assert len(comparable_pairs([FIXED, hot, narrow])) == 3
    assert comparable_pairs([replace(STOPPED, temperature=1.0), FIXED]) == []
    assert comparable_pairs([replace(lookup, gamma=8), FIXED]) == []


def test_a_planted_difference_is_found_prompt_by_prompt() -> None:
    tables = make_tables(Plan(n_per_category=4, n_answer_tokens=8, conditions=(FIXED, STOPPED)))
    runs = tables["spec_runs"]
    fixed = runs[runs["stop"] == "none"].sort_values("prompt_id", ignore_index=True)
    # Prompts differ far more from each other than the rule changes any of them: only pairing shows it.
    spread = np.linspace(0.5, 3.0, len(fixed))
    noise = np.random.default_rng(0).normal(0, 0.01, len(fixed))
    stopped = fixed.assign(stop="entropy", stop_threshold=0.2, speedup=spread + 0.05 + noise)
    tables["spec_runs"] = pd.concat([fixed.assign(speedup=spread), stopped.iloc[1:]], ignore_index=True)
    row = compared(tables, FIXED, STOPPED).differences[STOPPED, FIXED, "speedup"]
    assert row.n == 19
    assert row.estimate == pytest.approx(0.05 + np.median(noise[1:]))
    assert 0.03 < row.ci_low < 0.05 < row.ci_high < 0.07
    assert (row.stop_threshold, row.reference_stop, row.reference_stop_threshold) == (0.2, "none", None)


@pytest.mark.parametrize(("effect", "found"), [(0.0, False), (-1.5, True)])
def test_an_effect_of_temperature_is_found_where_there_is_one(effect: float, found: bool) -> None:
    hot = replace(FIXED, temperature=1.0)
    plan = Plan(n_per_category=5, n_answer_tokens=64, conditions=(FIXED, hot), temperature_effect=effect)
    row = compared(make_tables(plan), FIXED, hot).differences[hot, FIXED, "alpha_expected"]
    assert (row.ci_high < 0) == found
    assert row.ci_low < 0


def test_a_rule_saves_drafts_and_untested_tokens() -> None:
    found = compared(make_tables(Plan(n_per_category=3, conditions=(FIXED, STOPPED))), FIXED, STOPPED)
    for name in ("proposed_per_token", "untested_share"):
        assert found.differences[STOPPED, FIXED, name].ci_high < 0


def test_the_theory_that_agrees_with_the_clock_is_the_nearest() -> None:
    # In the made-up tables every theory is a fixed multiple of the measured speedup.
    result, _ = analysed(replace(SMALL, gammas=(2, 4)))
    errors = result.comparison.theory_errors.set_index("measure")
    speedups = result.prompts[[result.at("speedup", condition) for condition in result.gammas]].mean(axis=1).median()
    assert errors.loc["theoretical_speedup_full", "value"] == pytest.approx(0.05 * speedups)
    assert errors.loc["theoretical_speedup_flops", "value"] == pytest.approx(0.3 * speedups)
    assert errors["value"].idxmin() == "theoretical_speedup_full"
    assert set(errors["n"]) == {15}


def test_the_rows_fit_their_tables() -> None:
    conditions = (FIXED, STOPPED, replace(FIXED, gamma=8), replace(FIXED, temperature=1.0))
    result = analyze(make_tables(Plan(n_per_category=1, n_answer_tokens=8, conditions=conditions)), FAST)
    for name, rows in (
        ("condition_measures", [*result.comparison.measures.values()]),
        ("condition_differences", [*result.comparison.differences.values()]),
        ("entropy_bound", result.entropy_bounds),
    ):
        table = to_table(name, rows)
        assert table.num_rows
        check_unique(name, table)
    # Three pairs that differ in gamma or stop rule, one in temperature.
    assert len(result.comparison.differences) == 4 * len(measures_in("differences"))


def test_nothing_measured_is_nothing_compared() -> None:
    result = analyze({}, FAST)
    assert (result.comparison.measures, result.comparison.differences, result.entropy_bounds) == ({}, {}, [])
