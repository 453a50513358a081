from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from synthetic import Plan, make_tables

from specstudy import formulas
from specstudy.analysis import join
from specstudy.analysis.join import conditions_measured, decoded_tokens, prompt_frame
from specstudy.analysis.measures import (
    At,
    condition_name,
    condition_suffixes,
    label,
    of_other_gammas,
    phrase,
    primary_condition,
)
from specstudy.condition import Condition
from specstudy.records import STAGE_TABLES
from specstudy.tables.schema import schema_of, validate

SMALL = Plan(n_per_category=3, n_answer_tokens=20)


@pytest.mark.parametrize("plan", [SMALL, Plan(n_per_category=1, gammas=(2, 4), repetitions=2, n_answer_tokens=8)])
def test_synthetic_tables_are_tables_of_a_study(plan):
    for name, frame in make_tables(plan).items():
        schema = schema_of(name)
        table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
        validate(name, table.replace_schema_metadata(schema.metadata))
    on_request = {"decode_attention_heads", "lowered_keys"}
    measured = {t for s in ("prefill", "decode", "speculate") for t in STAGE_TABLES[s]}
    assert set(make_tables(plan)) == measured - on_request | {"errors"}


def test_repetitions_are_averaged_within_the_prompt():
    tables = make_tables(Plan(n_per_category=2, n_answer_tokens=10, repetitions=3))
    prompts = prompt_frame(tables)
    runs = tables["decode_runs"]
    assert len(prompts) == 10
    expected = runs[runs["prompt_id"] == "code-01"]["mean_entropy_bits"].mean()
    assert prompts.loc["code-01", "mean_entropy_bits"] == pytest.approx(expected)


def test_a_prompt_that_failed_in_a_stage_keeps_the_rest():
    tables = make_tables(SMALL)
    for name in STAGE_TABLES["speculate"]:
        tables[name] = tables[name][tables[name]["prompt_id"] != "math-02"]
    row = prompt_frame(tables).loc["math-02"]
    assert np.isfinite(row["mean_entropy_bits"])
    assert np.isnan(row[At("alpha", *conditions_measured(tables))])


def test_without_any_table_the_frames_are_empty():
    assert prompt_frame({}).empty
    assert decoded_tokens({}).empty
    assert conditions_measured({}) == []


def test_untested_tokens_are_no_evidence():
    tables = make_tables(SMALL)
    condition = conditions_measured(tables)[0]
    tokens = tables["spec_tokens"]
    tested = join.tested_tokens(tables, condition)
    assert len(tested) == tables["spec_runs"]["n_tested"].sum() < (tokens["kind"] == "draft").sum()
    assert tested["accepted"].sum() == tables["spec_runs"]["n_accepted"].sum()


def test_null_columns_of_any_pandas_type_become_nan():
    tables = make_tables(SMALL)
    frame = tables["prefill_prompts"].convert_dtypes(dtype_backend="pyarrow")
    frame["context_health_soft"] = pd.array([None, *frame["context_health_soft"][1:]], dtype="Float64")
    frame["sink_rate"] = pd.Series([None] * len(frame), dtype=object)
    prompts = prompt_frame({**tables, "prefill_prompts": frame})
    assert prompts["context_health_soft"].isna().sum() == 1
    assert prompts["sink_rate"].isna().all()
    assert prompts["n_tokens"].dtype == np.float64


def test_the_series_way_feeds_accepted_over_proposed_into_the_formula():
    tables = make_tables(SMALL)
    run = tables["spec_runs"].iloc[0]
    expected = formulas.expected_speedup(run["acceptance_rate"], 4, run["cost_ratio_flops"])
    key = At("theoretical_speedup_acceptance_rate", *conditions_measured(tables))
    value = prompt_frame(tables)[key][run["prompt_id"]]
    assert value == pytest.approx(expected)


def test_only_keys_that_vary_are_named():
    base = Condition(4, "model", "none", 0.7, 0.9)
    other, cold = Condition(6, "model", "none", 0.7, 0.9), Condition(4, "model", "none", 0.0, 0.9)
    assert condition_suffixes([base]) == {base: ""}
    assert condition_suffixes([base, other]) == {base: "@gamma4", other: "@gamma6"}
    assert condition_suffixes([base, other, cold])[cold] == "@gamma4,temperature=0.0"
    assert condition_name(base, condition_suffixes([base])) == "gamma 4"
    assert condition_name(cold, condition_suffixes([base, other, cold])) == "gamma 4, temperature=0.0"


def test_the_primary_setting_is_the_nearest_gamma():
    wanted = Condition(7, "model", "none", 0.7, 0.9)
    conditions = [replace(wanted, gamma=gamma) for gamma in (2, 6, 8)]
    assert primary_condition(conditions, wanted).gamma == 6
    assert primary_condition([], wanted) is None


def test_among_settings_of_one_gamma_the_primary_one_is_that_which_was_asked_for():
    none = Condition(4, "model", "none", 0.7, 0.9)
    entropy = replace(none, stop="entropy", stop_threshold=0.5)
    conditions = [none, entropy, replace(entropy, gamma=8)]
    assert primary_condition(conditions, entropy) == entropy
    assert primary_condition(conditions, replace(entropy, gamma=7)) == replace(entropy, gamma=8)
    # What was asked for did not run: the nearest is what shares most of it.
    assert primary_condition(conditions, replace(entropy, top_p=0.5)) == entropy
    assert of_other_gammas(conditions, entropy) == [entropy, replace(entropy, gamma=8)]


def test_a_rule_is_named_with_its_threshold():
    none = Condition(4, "model", "none", 0.7, 0.9)
    rules = [none, *(replace(none, stop="entropy", stop_threshold=x) for x in (0.3, 0.5))]
    assert list(condition_suffixes(rules).values()) == ["@stop=none", "@stop=entropy 0.3", "@stop=entropy 0.5"]


def test_rows_of_a_setting_are_told_apart_by_the_threshold_too():
    runs = make_tables(SMALL)["spec_runs"]
    stopped = [runs.assign(stop="entropy", stop_threshold=x) for x in (0.3, 0.5)]
    tables = {"spec_runs": pd.concat([runs, *stopped], ignore_index=True)}
    conditions = conditions_measured(tables)
    assert sorted(s.rule for s in conditions) == ["entropy 0.3", "entropy 0.5", "none"]
    for condition in conditions:
        rows = join.of_condition(tables["spec_runs"], condition)
        assert len(rows) == len(runs)
        assert set(rows["stop"]) == {condition.stop}


def test_measures_have_words():
    at_four = Condition(4, "model", "none", 0.7, 0.9), "@gamma4"
    assert label(At("alpha", *at_four)) == "alpha (accepted / tested), gamma 4"
    assert phrase(At("alpha_expected", *at_four)) == "expected alpha, gamma 4"
    assert str(At("alpha", *at_four)) == "alpha@gamma4"
    assert label(At("alpha", at_four[0])) == "alpha (accepted / tested)"
    assert phrase("context_health_soft") == "soft context health"
