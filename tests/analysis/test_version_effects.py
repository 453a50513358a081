"""Paired effects of altered prompts, worked out by hand on a few prompts."""

import numpy as np
import pandas as pd
import pytest

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.measures import measures_in
from specstudy.analysis.version_effects import PER_DOSE, unaltered_only, version_effects, version_frame
from specstudy.condition import STUDY_CONDITION
from specstudy.records import VersionEffect

SETTINGS = AnalysisSettings(bootstrap_samples=500)
ORIGINALS = ("a", "b", "c", "d")


def versions(doses: tuple[int, ...] = (1, 2)) -> pd.DataFrame:
    rows: list[tuple[str, str, str, str, int, str | None]] = []
    for name in ORIGINALS:
        rows.append((name, "code", name, "clean", 0, None))
        for dose in doses:
            control = f"{name}~related{dose}"
            rows.append((control, "code", name, "related", dose, name))
            rows.append((f"{name}~irrelevant{dose}", "code", name, "irrelevant", dose, control))
    return pd.DataFrame(rows, columns=["prompt_id", "category", "original_id", "kind", "dose", "control_id"])


def measured(table: pd.DataFrame) -> pd.DataFrame:
    """Original i has entropy i; each dose of the control adds 0.5; the poison adds 1 to 1.3 a dose to its control."""
    rank = table["original_id"].map({name: float(i) for i, name in enumerate(ORIGINALS)})
    poison = np.where(table["kind"] == "irrelevant", (1.0 + rank / 10) * table["dose"], 0.0)
    entropy = rank + 0.5 * table["dose"] + poison
    return pd.DataFrame({"mean_entropy_bits": entropy.to_numpy()}, index=pd.Index(table["prompt_id"]))


def effects(prompts: pd.DataFrame, table: pd.DataFrame) -> dict[int, VersionEffect]:
    rows = version_effects({"prompt_versions": table}, prompts, SETTINGS)
    assert {row.kind for row in rows} == {"related", "irrelevant"}
    related = {row.dose: row for row in rows if row.kind == "related"}
    assert all(row.control_difference is None for row in related.values()), "nothing is compared with the unaltered"
    return {row.dose: row for row in rows if row.kind == "irrelevant"}


def test_differences_are_paired_with_the_control_and_the_control_with_its_own() -> None:
    table = versions()
    found = effects(measured(table), table)
    assert set(found) == {1, 2, PER_DOSE}
    assert found[1].n == 4
    assert found[1].difference == pytest.approx((1.0 + 1.1 + 1.2 + 1.3) / 4)
    assert found[2].difference == pytest.approx(2 * 1.15)
    assert found[PER_DOSE].difference == pytest.approx(1.15)
    assert found[1].control_difference == pytest.approx(0.5)
    assert found[2].control_difference == pytest.approx(1.0)
    assert found[1].ci_low is not None
    assert found[1].ci_high is not None
    assert 1.0 <= found[1].ci_low < 1.15 < found[1].ci_high <= 1.3


def test_a_prompt_that_failed_leaves_the_pair_and_not_the_others() -> None:
    table = versions()
    prompts = measured(table).drop(index="a~related1")
    found = effects(prompts, table)
    assert found[1].n == 3
    assert found[1].difference == pytest.approx(1.2)
    assert found[2].n == 4
    assert found[PER_DOSE].n == 3


def test_a_control_that_is_the_same_at_every_dose_has_no_change_per_dose() -> None:
    table = versions()
    moved = table.assign(control_id=np.where(table["kind"] == "irrelevant", table["original_id"] + "~related1", None))
    moved.loc[moved["kind"] == "related", "control_id"] = moved["original_id"]
    found = effects(measured(table), moved)
    assert found[1].control_difference == found[2].control_difference == pytest.approx(0.5)
    assert found[PER_DOSE].difference is not None
    assert found[PER_DOSE].control_difference is None


def test_one_dose_has_no_slope_and_few_prompts_no_interval() -> None:
    table = versions(doses=(1,))
    table = table[table["original_id"].isin(["a", "b"])]
    found = effects(measured(table), table)
    assert set(found) == {1}
    assert found[1].ci_low is None
    assert found[1].null_reason == "2 independent prompts; an interval needs 3"


def test_p_values_are_adjusted_over_the_doses_and_not_for_the_slope() -> None:
    table = versions()
    found = effects(measured(table), table)
    assert found[1].p_value is not None
    # The control's constant differences have no p-value, so the family is the two doses.
    assert found[1].p_adjusted == pytest.approx(2 * found[1].p_value)
    assert found[PER_DOSE].p_adjusted is None


def test_kinds_without_doses_are_adjusted_together() -> None:
    table = versions(doses=(1,))
    others = table[table["kind"] == "irrelevant"].assign(kind="hidden", dose=0)
    others["prompt_id"] = others["original_id"] + "~hidden"
    prompts = pd.concat([measured(table), measured(table).loc[table["kind"].to_numpy() == "irrelevant"]])
    prompts.index = pd.Index([*table["prompt_id"], *others["prompt_id"]])
    rows = version_effects({"prompt_versions": pd.concat([table, others])}, prompts, SETTINGS)
    found = {row.kind: row for row in rows}
    assert found["hidden"].p_value is not None
    assert found["hidden"].p_adjusted == pytest.approx(2 * found["hidden"].p_value)


def test_a_study_without_versions_has_no_effects() -> None:
    assert version_effects({}, measured(versions()), SETTINGS) == []


def test_a_measure_that_was_not_taken_is_null_with_a_reason() -> None:
    table = versions()
    rows = version_effects({"prompt_versions": table}, measured(table).assign(alpha=np.nan), SETTINGS)
    empty = [row for row in rows if row.measure == "alpha"]
    assert {row.difference for row in empty} == {None}
    assert {row.null_reason for row in empty} == {"0 independent prompts; an interval needs 3"}


def test_what_is_measured_of_a_version() -> None:
    tables = {
        "prompt_versions": pd.DataFrame({"prompt_id": ["a", "hot"], "temperature": [np.nan, 1.3]}),
        "prefill_prompts": pd.DataFrame(
            {
                "prompt_id": ["a"],
                **{name: [float(i)] for i, name in enumerate(measures_in("versions", "prefill_prompts"))},
            }
        ),
        "decode_runs": pd.DataFrame(
            {
                "prompt_id": ["a", "a", "b"],
                "mean_entropy_bits": [1.0, 2.0, 4.0],
                "mean_expected_accept": [0.1, 0.2, 0.3],
            }
        ),
        "decode_tokens": pd.DataFrame({"prompt_id": ["b", "b"], "sampling_entropy_bits": [0.5, 1.5]}),
        "spec_runs": pd.DataFrame(
            {
                "prompt_id": ["a", "a", "a", "a", "hot"],
                "proposer": "model",
                "stop": ["none", "none", "entropy", "none", "none"],
                "stop_threshold": [np.nan, np.nan, 0.5, np.nan, np.nan],
                "temperature": [0.7, 0.7, 0.7, 1.3, 1.3],
                "top_p": 0.9,
                "gamma": [4, 8, 4, 4, 4],
                "alpha": [0.5, 0.9, 0.9, 0.9, 0.4],
                "alpha_expected": [0.6, 0.9, 0.9, 0.9, 0.3],
                "tokens_per_round": [2.0, 9.0, 9.0, 9.0, 1.5],
            }
        ),
    }
    frame = version_frame(tables, STUDY_CONDITION)
    assert list(frame.columns) == list(measures_in("versions"))
    assert frame.loc["a", "mean_entropy_bits"] == 1.5
    assert frame.loc["a", "alpha"] == 0.5
    assert frame.loc["hot", "alpha"] == 0.4, "a version that imposes a temperature is measured at it"
    assert version_frame(tables, None)["alpha"].isna().all()
    assert frame.loc["b", "mean_expected_accept"] == pytest.approx(0.3)
    assert np.isnan(frame.loc["b", "alpha"])
    assert np.isnan(frame.loc["a", "mean_sampling_entropy_bits"])


def test_the_ordinary_analysis_sees_only_unaltered_prompts() -> None:
    table = versions()
    tables = {
        "prompt_versions": table,
        "decode_runs": pd.DataFrame({"prompt_id": ["a", "a~related1", "a~irrelevant1", "b"]}),
        "claims": pd.DataFrame({"claim_id": ["x"]}),
    }
    kept = unaltered_only(tables)
    assert kept["decode_runs"]["prompt_id"].tolist() == ["a", "b"]
    assert len(kept["claims"]) == 1
    plain = {"decode_runs": tables["decode_runs"]}
    assert unaltered_only(plain) is plain
