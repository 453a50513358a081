"""Each set of prompt versions through the whole study, on tiny models."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from tiny_study import PROMPTS, configuration, tiny_pair

from specstudy import open_run
from specstudy.errors import UserError
from specstudy.models.load import Pair
from specstudy.records import STAGE_TABLES, TIMING_COLUMNS
from specstudy.running import workflow
from specstudy.running.answer import answer
from specstudy.running.stages.decode import DECODE
from specstudy.running.stages.prefill import PREFILL
from specstudy.running.stages.speculate import SPECULATE
from specstudy.tables.run import Run

pytestmark = pytest.mark.usefixtures("tiny_models")

STAGES = (PREFILL, DECODE, SPECULATE)
NAMES = ("prompt-0", "prompt-1", "prompt-2")
ASKED = {name: PROMPTS[name] for name in NAMES}
FEW = ("prompts.doses=1", "prompts.lowered_by=[1.0,4.0]", "prompts.temperatures=[0.3,1.3]")
FAST = ("analysis.bootstrap_samples=50", "spec.baseline=false")


def contexts(directory: Path, names: tuple[str, ...] = NAMES, n_related: int = 2) -> str:
    """A file of contexts, as a word for the command line."""
    text = {
        name: {
            "needed": f"A is {name}.\nB is so.\nD is it.",
            "related": "\n".join(f"C{i} is it." for i in range(n_related)),
            "contradictions": f"A is no {name}.\nB is not.",
        }
        for name in names
    }
    path = directory / "contexts.yaml"
    path.write_text(json.dumps(text))
    return f"prompts.contexts={path}"


def studied(directory: Path, *given: str, answered: bool = False) -> Run:
    after = answer if answered else None
    assert workflow.run(configuration(directory, ASKED, *FAST, *given), STAGES, after=after) == 0
    return open_run(directory / "latest")


@pytest.fixture(scope="module")
def answered_study(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """A study of each set of versions, measured and answered once."""

    @cache
    def study(versions: str) -> Run:
        directory = tmp_path_factory.mktemp(versions)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(workflow, "find_models", lambda config: lambda: pair)
            return studied(directory, f"prompts.versions={versions}", contexts(directory), *FEW, answered=True)

    return study


def untimed(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.drop(columns=[name for name in frame if name in TIMING_COLUMNS]).reset_index(drop=True)


@pytest.mark.parametrize(
    ("versions", "n_versions", "n_prefilled"),
    [("poisoned", 9, 9), ("hidden", 7, 1), ("lowered", 9, 1), ("temperatures", 5, 1)],
)
def test_a_study_of_versions(
    versions: str, n_versions: int, n_prefilled: int, answered_study: Callable[[str], Run]
) -> None:
    run = answered_study(versions)
    told = run.prompt_versions
    assert len(told) == n_versions * len(NAMES)
    assert set(told["original_id"]) == set(NAMES)
    assert set(run.decode_runs["prompt_id"]) == set(run.spec_runs["prompt_id"]) == set(told["prompt_id"])
    assert len(run.prefill_prompts) == n_prefilled * len(NAMES)
    check = run.manifest["self_checks"]["speculate"]
    assert check["passed"]
    altered = {name for name in check if name.startswith(("hidden", "structural", "content", "temperature"))}
    assert len(altered) == (0 if versions == "poisoned" else n_versions - 1)
    # Claims and correlations speak of one version of each prompt.
    assert run.claims["n"].max() <= len(NAMES)
    effects = run.version_effects
    assert set(effects["kind"]) == set(told.loc[told["control_id"].notna(), "kind"])
    moved = effects.query("measure == 'mean_entropy_bits' and dose == 1 or kind == 'hidden_first'")
    assert moved["difference"].notna().any()
    assert (run.path / "report.html").is_file()


def test_what_lowering_took_is_in_the_tables(answered_study: Callable[[str], Run]) -> None:
    run = answered_study("lowered")
    told = run.prompt_versions.set_index("prompt_id")
    rows = run.lowered_keys
    of_verifier = rows[rows["model"] == "verifier"].set_index("prompt_id")
    assert set(of_verifier.index) == set(told.index[told["lowered"].notna()])
    assert set(rows.loc[rows["model"] == "draft", "prompt_id"]) == set(told.index[told["lowered_in_both"].eq(True)])
    left = (of_verifier["mass_after"] / of_verifier["mass_before"]).groupby(told["lowered_by"]).mean()
    assert (left.diff().dropna() < 0).all(), "the more is subtracted, the less is left"
    slopes = run.version_models
    assert set(slopes["x"]) == {"mass_moved"}


@pytest.mark.parametrize("versions", ["hidden", "lowered", "temperatures"])
def test_the_unaltered_version_is_the_ordinary_study_to_the_bit(
    versions: str, tmp_path: Path, answered_study: Callable[[str], Run]
) -> None:
    run = answered_study(versions)
    plain = studied(tmp_path)
    for stage in STAGES:
        for table in STAGE_TABLES[stage.name]:
            frame = untimed(run.table(table))
            frame = frame[frame["prompt_id"].str.endswith("~unaltered")].reset_index(drop=True)
            frame["prompt_id"] = frame["prompt_id"].str.removesuffix("~unaltered")
            pd.testing.assert_frame_equal(frame, untimed(plain.table(table)), check_exact=True)


def test_versions_are_compared_on_the_same_random_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import specstudy.seeds

    asked: list[tuple[object, ...]] = []
    real = specstudy.seeds.uniforms

    def noting(*parts: int | str | None) -> object:
        asked.append(parts)
        return real(*parts)

    monkeypatch.setattr(specstudy.seeds, "uniforms", noting)
    one = {"prompt-1": PROMPTS["prompt-1"]}
    workflow.run(configuration(tmp_path, one, *FAST, *FEW, "prompts.versions=temperatures"), [DECODE, SPECULATE])
    drawn = [parts for parts in asked if parts[1] in ("decode", "speculate")]
    assert len(drawn) == 5 + 2 * 5
    assert set(drawn) == {(0, "decode", "prompt-1", 0), (0, "speculate", "prompt-1", 2, 0)}


def test_the_temperature_in_the_tables_is_the_one_imposed(tmp_path: Path) -> None:
    run = studied(tmp_path, "prompts.versions=temperatures", "prompts.temperatures=[1.0,1.6]")
    told = run.prompt_versions.set_index("prompt_id")
    measured = run.spec_runs.set_index("prompt_id")["temperature"]
    assert (measured == told["temperature"].fillna(0.7).reindex(measured.index)).all()
    kinds = told.groupby("kind")[["temperature", "draft_temperature"]].agg(list)
    assert kinds.loc["temperature", "draft_temperature"] != kinds.loc["temperature_of_verifier", "draft_temperature"]
    assert set(told.loc[told["kind"] == "temperature_of_verifier", "draft_temperature"]) == {0.7}
    entropy = run.decode_tokens.groupby("prompt_id")["sampling_entropy_bits"].mean()
    hotter = told["control_id"].dropna()
    higher = entropy.loc[hotter.index].to_numpy() > entropy.loc[hotter].to_numpy()
    assert higher.all(), "a higher temperature is more entropy"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["prompts.versions=poisoned"], "no context for the prompt 'prompt-0'"),
        (["prompts.versions=poisoned", "CONTEXTS", "prompts.doses=3"], "3 doses are more than the sentences"),
        (["prompts.versions=poisoned", "prompts.contexts=nowhere.yaml"], "cannot be read as YAML"),
        (["prompts.versions=hidden", "spec.proposer=prompt_lookup"], "spec.proposer must be model, got prompt_lookup"),
        (["prompts.versions=lowered", "spec.proposer=early_exit"], "spec.proposer must be model, got early_exit"),
        (["prompts.versions=lowered", "prompts.lowered_by=[0]"], "prompts.lowered_by"),
        (["prompts.versions=temperatures", "spec.temperature=[0.7,1.0]"], "must be decode's 0.7, got 0.7,1"),
    ],
)
def test_what_cannot_be_is_one_line_before_models_load(
    given: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow, "find_models", lambda config: pytest.fail("models were looked for"))
    words = [contexts(tmp_path) if word == "CONTEXTS" else word for word in given]
    with pytest.raises(UserError, match=said) as caught:
        workflow.run(configuration(tmp_path / "outputs", ASKED, *words), STAGES)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "outputs").glob("*-*"))


@pytest.mark.parametrize("role", ["verifier", "draft"])
def test_eager_attention_is_refused_before_anything_is_measured(
    role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = tiny_pair()
    getattr(pair, role).module.set_attn_implementation("eager")
    monkeypatch.setattr(workflow, "find_models", lambda config: lambda: pair)
    stages = [replace(stage, measure=lambda *given: pytest.fail("measured")) for stage in STAGES]
    with pytest.raises(UserError, match="this llama model runs eager"):
        workflow.run(configuration(tmp_path, ASKED, *FAST, "prompts.versions=lowered"), stages)
