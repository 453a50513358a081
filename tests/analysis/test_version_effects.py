"""Paired effects of altered prompts, worked out by hand on a few prompts."""

import numpy as np
import pandas as pd
import pytest

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.version_effects import PER_DOSE, unaltered_only, version_effects
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
    rows = version_effects({"prompt_versions": table}, prompts, ["mean_entropy_bits"], SETTINGS)
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


def test_one_dose_has_no_slope_and_few_prompts_no_interval() -> None:
    table = versions(doses=(1,))
    table = table[table["original_id"].isin(["a", "b"])]
    found = effects(measured(table), table)
    assert set(found) == {1}
    assert found[1].ci_low is None
    assert found[1].null_reason == "2 prompts; an interval needs 3"


def test_p_values_are_adjusted_over_the_doses_and_not_for_the_slope() -> None:
    table = versions()
    found = effects(measured(table), table)
    assert found[1].p_value is not None
    # The control's constant differences have no p-value, so the family is the two doses.
    assert found[1].p_adjusted == pytest.approx(2 * found[1].p_value)
    assert found[PER_DOSE].p_adjusted is None


def test_a_measure_that_was_not_taken_has_no_rows() -> None:
    table = versions()
    assert version_effects({"prompt_versions": table}, measured(table), ["alpha_expected"], SETTINGS) == []


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
