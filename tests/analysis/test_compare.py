from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from synthetic import Plan, make_tables

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.compare import (
    OTHER_MACHINE,
    Side,
    changed_claims,
    compare,
    compare_tokens,
    paired_conditions,
)
from specstudy.analysis.join import conditions_measured
from specstudy.analysis.measures import ANSWER_MEASURES
from specstudy.condition import Condition
from specstudy.errors import UserError

FAST = AnalysisSettings(bootstrap_samples=400)
PLAN = Plan(n_per_category=4, n_answer_tokens=12)
BASE = Condition(4, "model", "none", 0.7, 0.9)
OF_CONDITIONS = (
    *("acceptance_rate", "alpha", "alpha_expected", "tokens_per_round"),
    *("speedup", "speedup_steps", "tokens_per_s"),
)


def side(tables: dict[str, pd.DataFrame], name: str = "run", **parts: dict) -> Side:
    return Side(name, parts.get("config", {}), parts.get("manifest", {}), tables)


def row_of(comparison, measure: str, condition: str = "gamma 4") -> pd.Series:
    rows = comparison.measures
    return rows[(rows["measure"] == measure) & (rows["condition"] == condition)].iloc[0]


def claims(**verdicts: str) -> pd.DataFrame:
    columns = {"statement": "So it is.", "estimate": 0.2, "ci_low": 0.1, "ci_high": 0.3}
    return pd.DataFrame([{"claim_id": name, "verdict": verdict, **columns} for name, verdict in verdicts.items()])


def test_differences_are_paired_by_prompt_and_over_prompts_of_both():
    tables, other = make_tables(PLAN), make_tables(PLAN)
    shift = np.random.default_rng(1).normal(0.05, 0.02, len(other["spec_runs"]))
    other["spec_runs"]["alpha"] += shift
    left_out = other["spec_runs"]["prompt_id"].iloc[3]
    other["spec_runs"] = other["spec_runs"].drop(index=3)
    found = row_of(compare(side(tables), side(other), FAST), "alpha")

    kept = tables["spec_runs"][tables["spec_runs"]["prompt_id"] != left_out]
    assert found["n"] == len(tables["spec_runs"]) - 1 == 19
    assert found["a"] == pytest.approx(kept["alpha"].mean())
    assert found["value"] == pytest.approx(np.delete(shift, 3).mean())
    assert found["b"] == pytest.approx(found["a"] + found["value"])
    error = np.delete(shift, 3).std(ddof=1) / np.sqrt(19)
    # Paired: far narrower than the spread of alpha over prompts would allow.
    assert found["low"] == pytest.approx(found["value"] - 1.96 * error, abs=0.4 * error)
    assert found["high"] == pytest.approx(found["value"] + 1.96 * error, abs=0.4 * error)
    assert error < 0.2 * kept["alpha"].std(ddof=1) / np.sqrt(19)


def test_every_measure_is_there_once_and_swapping_the_runs_turns_signs():
    a, b = side(make_tables(PLAN)), side(make_tables(replace(PLAN, seed=1, speedup=1.4)))
    there, back = compare(a, b, FAST).measures, compare(b, a, FAST).measures
    expected = [("", m) for m in ("context_health_soft", *ANSWER_MEASURES)] + [("gamma 4", m) for m in OF_CONDITIONS]
    assert list(there[["condition", "measure"]].itertuples(index=False, name=None)) == expected
    assert (there["n"] == 20).all()
    pd.testing.assert_series_equal(there["value"], -back["value"])
    assert there.set_index("measure").loc["speedup", "low"] > 0.1


def test_a_run_against_itself_differs_in_nothing():
    tables = make_tables(PLAN) | {"claims": claims(one="supported")}
    comparison = compare(side(tables), side(tables), FAST)
    assert (comparison.measures["value"] == 0).all()
    assert comparison.measures["low"].isna().all()
    assert comparison.config == comparison.provenance == {}
    assert comparison.claims is not None
    assert comparison.claims.empty
    assert (comparison.tokens["n_equal"] == comparison.tokens["n_prompts"]).all()
    assert (comparison.tokens["n_prompts"] == 20).all()
    assert len(comparison.tokens) == 4


def test_a_difference_of_load_is_no_effect():
    a, b = make_tables(PLAN), make_tables(replace(PLAN, seed=1, speedup=1.4, load_average=3.2))
    comparison = compare(side(a), side(b), FAST)
    (why,) = comparison.machine
    assert "of b was busy" in why
    for measure in ("speedup", "speedup_steps", "tokens_per_s"):
        row = row_of(comparison, measure)
        assert np.isfinite(row["value"])
        assert np.isnan([row["low"], row["high"]]).all()
        assert row["null_reason"] == OTHER_MACHINE
    assert np.isfinite(row_of(comparison, "alpha")["low"])


@pytest.mark.parametrize(("pace", "threads", "told"), [(1.05, 1, False), (1.3, 1, True), (1.3, 2, False)])
def test_another_pace_of_the_same_verifier_is_no_effect_unless_the_runs_say_why(pace, threads, told):
    b = make_tables(replace(PLAN, seed=1))
    b["spec_runs"]["verifier_step_s"] *= pace
    first, second = ({"execution": {"threads": n}} for n in (1, threads))
    comparison = compare(side(make_tables(PLAN), manifest=first), side(b, manifest=second), FAST)
    assert ["as long in b" in why for why in comparison.machine] == [True] * told


def test_repetitions_are_averaged_within_the_prompt_first():
    once, thrice = make_tables(PLAN), make_tables(replace(PLAN, repetitions=3))
    comparison = compare(side(once), side(thrice), FAST)
    per_prompt = thrice["spec_runs"].groupby("prompt_id")["tokens_per_s"].mean()
    assert row_of(comparison, "tokens_per_s")["n"] == 20
    assert row_of(comparison, "tokens_per_s")["b"] == pytest.approx(per_prompt.median())
    per_prompt = thrice["decode_runs"].groupby("prompt_id")["mean_entropy_bits"].mean()
    assert row_of(comparison, "mean_entropy_bits", "")["b"] == pytest.approx(per_prompt.mean())


def test_gammas_of_both_are_compared_one_by_one():
    a, b = make_tables(replace(PLAN, gammas=(2, 4, 8))), make_tables(replace(PLAN, gammas=(4, 6, 8), seed=1))
    comparison = compare(side(a), side(b), FAST)
    assert list(dict.fromkeys(comparison.measures["condition"])) == ["", "gamma 4", "gamma 8"]
    assert comparison.unpaired == {"a": ["gamma 2"], "b": ["gamma 6"]}
    at_8 = a["spec_runs"][a["spec_runs"]["gamma"] == 8]
    assert row_of(comparison, "acceptance_rate", "gamma 8")["a"] == pytest.approx(at_8["acceptance_rate"].mean())


def test_two_runs_of_one_setting_are_compared_whatever_it_is():
    comparison = compare(side(make_tables(PLAN)), side(make_tables(replace(PLAN, gammas=(6,)))), FAST)
    assert "gamma 4 (a), gamma 6 (b)" in set(comparison.measures["condition"])
    cold = replace(BASE, temperature=0.0)
    assert paired_conditions([BASE], [cold]) == [(BASE, cold)]
    both = [BASE, replace(BASE, gamma=2)]
    assert paired_conditions(both, [cold]) == [(BASE, cold)]
    assert paired_conditions([cold], both) == [(cold, BASE)]
    assert paired_conditions(both, [replace(BASE, gamma=6)]) == []
    assert paired_conditions([], [BASE]) == []


def test_prompts_of_one_run_only_are_named():
    more, fewer = make_tables(PLAN), make_tables(replace(PLAN, categories=("code", "factual")))
    comparison = compare(side(more), side(fewer), FAST)
    assert comparison.n_common == 8
    assert comparison.only_in_a[0] == "ambiguous-01"
    assert (len(comparison.only_in_a), comparison.only_in_b) == (12, [])
    assert row_of(comparison, "alpha")["n"] == 8


def test_runs_without_a_common_prompt_are_refused_in_one_line():
    a, b = (side(make_tables(replace(PLAN, categories=(name,))), f"run-{name}") for name in ("code", "math"))
    with pytest.raises(UserError) as error:
        compare(a, b, FAST)
    expected = "a and b have no prompt in common: run-code has 4, the first code-01, run-math has 4, the first math-01"
    assert str(error.value) == expected
    with pytest.raises(UserError, match=r"no prompt in common: run-code has 4, the first code-01, empty has 0$"):
        compare(a, side({}, "empty"), FAST)


@pytest.mark.parametrize("kept", ["prefill", "decode", "spec"])
def test_what_one_run_has_not_measured_has_no_number(kept):
    tables = make_tables(PLAN)
    comparison = compare(side(tables), side({n: f for n, f in tables.items() if n.startswith(kept)}), FAST)
    measured = {"prefill": ["context_health_soft"], "decode": [*ANSWER_MEASURES], "spec": list(OF_CONDITIONS)}
    rows = comparison.measures
    assert rows[rows["n"] > 0]["measure"].tolist() == measured[kept]
    assert rows[rows["n"] == 0][["a", "b", "value", "low", "high"]].isna().all(axis=None)
    assert comparison.unpaired["a"] == ([] if kept == "spec" else ["gamma 4"])
    assert comparison.claims is None
    assert len(comparison.tokens) == (2 if kept == "spec" else 1)


def test_configuration_and_provenance_that_differ():
    def manifest(device: str, threads: int, torch: str, verifier: str) -> dict:
        return {
            "time": {"start": device},
            "stages": {"speculate": {"n_done": threads, "load_average": [1.0]}},
            "execution": {"device": device, "dtype": "float16", "threads": threads},
            "models": {"verifier": {"name": verifier, "sha256": verifier * 2, "dimensions": {"n_layers": threads}}},
            "environment": {"packages": {"torch": torch}, "git": {"commit": device}},
        }

    tables = make_tables(Plan(n_per_category=1, n_answer_tokens=4))
    a = side(tables, config={"spec": {"gamma": [4]}, "seed": 0}, manifest=manifest("cpu", 2, "2.13", "x"))
    b = side(tables, config={"spec": {"gamma": [6]}, "seed": 0}, manifest=manifest("mps", 4, "2.14", "y"))
    comparison = compare(a, b, FAST)
    assert comparison.config == {"spec.gamma": ([4], [6])}
    assert comparison.provenance == {
        "execution.device": ("cpu", "mps"),
        "execution.threads": (2, 4),
        "models.verifier.name": ("x", "y"),
        "models.verifier.sha256": ("xx", "yy"),
        "environment.packages.torch": ("2.13", "2.14"),
    }


def test_claims_that_changed_their_verdict():
    a = claims(first="supported", same="undecided", old="not_run")
    b = claims(same="undecided", first="contradicted", new="supported")
    changed = changed_claims(a, b)
    verdicts = list(changed[["claim_id", "verdict_a", "verdict_b"]].itertuples(index=False, name=None))
    assert verdicts == [("first", "supported", "contradicted"), ("old", "not_run", None), ("new", None, "supported")]
    assert changed["statement"].tolist() == ["So it is."] * 3
    assert changed["estimate_b"].isna().tolist() == [False, True, False]


def tokens_of(a: dict, b: dict, sequence: str) -> dict:
    pairs = {"gamma 4": (conditions_measured(a)[0], conditions_measured(b)[0])}
    found = compare_tokens(a, b, pairs).set_index("sequence", drop=False)
    return found.loc[sequence].to_dict()


def changed_tokens(name: str, where: pd.Series, tables: dict) -> dict:
    tokens = tables[name].copy()
    tokens.loc[where, ["token_id", "token"]] = [77, " other"]
    return {**tables, name: tokens}


def test_the_first_token_that_differs_is_found():
    tables = make_tables(replace(PLAN, repetitions=2))
    tokens = tables["decode_tokens"]
    late = tokens["step"].isin([7, 9]) & (tokens["prompt_id"] == "math-02") & (tokens["repetition"] == 1)
    early = (tokens["step"] == 2) & (tokens["prompt_id"] == "math-03")
    found = tokens_of(tables, changed_tokens("decode_tokens", late | early, tables), "answer")
    before = tokens[late].iloc[0]
    assert found == {
        "sequence": "answer",
        "n_prompts": 20,
        "n_equal": 18,
        "prompt_id": "math-02",
        "repetition": 1,
        "place": "step 7",
        "id_a": before["token_id"],
        "token_a": before["token"],
        "id_b": 77,
        "token_b": " other",
    }


def test_an_answer_that_ends_sooner_differs_where_it_ends():
    tables = make_tables(PLAN)
    tokens = tables["decode_tokens"]
    cut = tokens[~((tokens["prompt_id"] == "code-01") & (tokens["step"] >= 5))]
    found = tokens_of(tables, {**tables, "decode_tokens": cut}, "answer")
    assert (found["n_equal"], found["prompt_id"], found["place"]) == (19, "code-01", "step 5")
    assert (found["id_b"], found["token_b"]) == (None, None)
    assert isinstance(found["id_a"], int)


def test_only_generations_of_both_are_compared():
    tables = make_tables(replace(PLAN, repetitions=2))
    tokens = tables["decode_tokens"]
    fewer = tokens[(tokens["repetition"] == 0) & (tokens["prompt_id"] != "code-01")]
    found = tokens_of(tables, {**tables, "decode_tokens": fewer}, "answer")
    assert (found["n_prompts"], found["n_equal"], found["place"]) == (19, 19, None)


def test_answer_and_drafts_of_speculation_are_told_apart():
    tables = make_tables(PLAN)
    tokens = tables["spec_tokens"]
    ids = tokens["prompt_id"] == "code-03"
    rejected = tokens[ids & (tokens["outcome"] == "rejected")].iloc[0]
    at_rejected = tokens.index == rejected.name
    drafts = changed_tokens("spec_tokens", at_rejected, tables)
    assert tokens_of(tables, drafts, "speculative answer, gamma 4")["n_equal"] == 20
    found = tokens_of(tables, drafts, "drafted tokens, gamma 4")
    assert (found["n_equal"], found["place"]) == (19, f"round {rejected['round']}, index {rejected['index']}")

    emitted = tokens[ids & tokens["emitted"]]
    corrected = (emitted["kind"] == "correction").to_numpy().argmax()
    answers = changed_tokens("spec_tokens", tokens.index == emitted.index[corrected], tables)
    assert tokens_of(tables, answers, "drafted tokens, gamma 4")["n_equal"] == 20
    found = tokens_of(tables, answers, "speculative answer, gamma 4")
    assert (found["n_equal"], found["prompt_id"], found["place"]) == (19, "code-03", f"step {corrected}")
