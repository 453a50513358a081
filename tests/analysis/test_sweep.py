from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from synthetic import Plan, make_tables

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.join import Tables
from specstudy.analysis.means import median
from specstudy.analysis.sweep import Sweep, SweepPoint, sweep, varying_keys

FAST = AnalysisSettings(bootstrap_samples=200)


def tables_at(*gammas: int) -> dict[str, pd.DataFrame]:
    return make_tables(Plan(n_per_category=2, n_answer_tokens=12, gammas=gammas))


def point(name: str, tables: Tables, **sections: Any) -> SweepPoint:
    return SweepPoint(sections, name, tables, FAST)


@pytest.fixture(scope="module")
def gammas() -> Sweep:
    return sweep([point(f"run-{g}", tables_at(g), spec={"gamma": [g], "stop": "none"}, seed=0) for g in (4, 2)])


def test_a_point_is_a_row_with_means_and_intervals_over_prompts(gammas: Sweep) -> None:
    assert gammas.keys == ["spec.gamma"]
    assert gammas.rows["spec.gamma"].tolist() == [4, 2]
    assert gammas.rows["run"].tolist() == ["run-4", "run-2"]
    assert gammas.rows["n_prompts"].tolist() == [10, 10]
    runs = tables_at(4)["spec_runs"].sort_values("prompt_id")
    expected = median(runs["speedup"].to_numpy(dtype=np.float64), FAST)
    row = gammas.rows.iloc[0]
    assert (row["speedup"], row["speedup_low"], row["speedup_high"]) == (expected.value, expected.low, expected.high)
    assert expected.value == pytest.approx(runs["speedup"].median())


def test_a_point_whose_machine_was_busy_says_why() -> None:
    busy = make_tables(Plan(n_per_category=2, n_answer_tokens=12, load_average=3.2))
    rows = sweep([point("a", tables_at(4), seed=0), point("b", busy, seed=1)]).rows
    assert rows["busy"].iloc[0] == ""
    assert "load 3.2" in rows["busy"].iloc[1]


def test_a_point_of_several_gammas_is_a_row_a_gamma() -> None:
    joint = sweep([point("run", tables_at(2, 4), spec={"gamma": [2, 4]})])
    assert joint.keys == ["spec.gamma"]
    assert joint.rows["spec.gamma"].tolist() == [2, 4]
    runs = tables_at(2, 4)["spec_runs"]
    for row in joint.rows.itertuples():
        alone = runs[runs["gamma"] == row._1]
        assert row.alpha_expected == pytest.approx(alone["alpha_expected"].mean())


def test_failed_prompts_are_counted_and_a_point_without_results_has_no_numbers() -> None:
    errors = pd.DataFrame({"stage": ["decode"], "prompt_id": ["x"], "kind": ["ValueError"], "message": ["no"]})
    joint = sweep([point("a", {"errors": errors}, seed=0), point("b", tables_at(4), seed=1)])
    assert joint.rows["n_errors"].tolist() == [1, 0]
    assert joint.rows["n_prompts"].tolist() == [0, 10]
    assert joint.rows["alpha"].isna().tolist() == [True, False]
    assert joint.keys == ["seed"]


def drafts(*distillations: dict[str, Any]) -> Sweep:
    points = [
        SweepPoint({"models": {"draft": f"draft-{i}"}}, f"run-{i}", tables_at(4), FAST, made)
        for i, made in enumerate(distillations)
    ]
    return sweep(points)


def test_points_of_several_drafts_say_how_each_was_made_and_whether_entropy_tells_acceptance() -> None:
    made = {"n_layers": 2, "n_training_answers": 600, "n_training_tokens": 90_000}
    joint = drafts(made, {**made, "n_training_tokens": 180_000})
    assert joint.draft_amount == "draft_n_training_tokens"
    assert joint.rows["draft_n_training_tokens"].tolist() == [90_000, 180_000]
    assert joint.rows["draft_n_layers"].tolist() == [2, 2]
    tokens = tables_at(4)["decode_tokens"]
    inside = [
        group["draft_entropy_bits"].corr(group["expected_accept"], method="spearman")
        for _, group in tokens.groupby("prompt_id")
    ]
    row = joint.rows.iloc[0]
    assert row["entropy_link"] == pytest.approx(np.median(inside))
    assert row["entropy_link_low"] <= row["entropy_link"] <= row["entropy_link_high"]


def test_where_tokens_were_not_counted_answers_are_and_where_nothing_is_known_nothing_is_drawn() -> None:
    made: dict[str, Any] = {"n_layers": 2, "n_training_answers": 600, "n_training_tokens": None}
    assert drafts(made, {**made, "n_training_tokens": 9}).draft_amount == "draft_n_training_answers"
    assert drafts(made, {}).draft_amount is None
    one = point("run", tables_at(4), spec={"gamma": [2, 4]})
    assert sweep([one]).draft_amount is None


@pytest.mark.parametrize(
    ("configs", "keys"),
    [
        ([{"a": 1, "b": 2}, {"a": 1, "b": 3}], ["b"]),
        ([{"a": 1}, {"a": 1}], []),
        ([{"a": None}, {"a": 1}], ["a"]),
        ([{"decode.top_p": p, "spec.top_p": p} for p in (0.5, 0.9)], ["decode.top_p"]),
        ([{"decode.top_p": 0.9, "spec.top_p": p} for p in (0.5, 0.9)], ["spec.top_p"]),
        ([{"decode.top_p": a, "spec.top_p": b} for a, b in ((0.5, 0.9), (0.9, 0.5))], ["decode.top_p", "spec.top_p"]),
    ],
)
def test_the_keys_that_vary(configs: list[dict[str, object]], keys: list[str]) -> None:
    assert varying_keys(configs) == keys


@pytest.mark.parametrize(
    ("values", "numeric"),
    [([2, 4], True), ([0.5, 0.9], True), (["a", "b"], False), ([None, 4], False), ([True, False], False)],
)
def test_measures_are_drawn_against_a_number_only(values: list[Any], numeric: bool) -> None:
    tables = tables_at(4)
    joint = sweep([point("run", tables, section={"key": value}) for value in values])
    assert joint.keys == ["section.key"]
    assert joint.numeric_key == ("section.key" if numeric else None)


def test_with_two_keys_there_is_none_to_draw_against() -> None:
    tables = tables_at(4)
    assert sweep([point("run", tables, seed=i, other=2 * i) for i in (0, 1)]).numeric_key is None
