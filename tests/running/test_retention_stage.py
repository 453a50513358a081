"""The stage that drops keys: asked for by its setting alone, on the decode stage's answers, refused before any work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import attention_models
import pytest
from tiny_study import PROMPTS, configuration, tiny_pair

from specstudy import open_run
from specstudy.errors import UserError
from specstudy.models.load import Pair
from specstudy.running import studies, workflow
from specstudy.running.stage import shared_parts
from specstudy.running.stages.decode import DECODE
from specstudy.running.stages.retention import RETENTION
from specstudy.running.stages.speculate import SPECULATE
from specstudy.running.tasks import tasks_of
from specstudy.tables.run import Run

TWO = dict(list(PROMPTS.items())[:2])


@pytest.fixture(scope="module")
def studied(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Run:
    words = ("retention.budgets=[0.25,0.5,0.9]", "decode.repetitions=2", "spec.baseline=false")
    config = configuration(tmp_path_factory.mktemp("study"), TWO, *words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workflow, "find_models", lambda config: lambda: pair)
        patch.setattr(studies, "STAGES", (*studies.STAGES[:2], replace(SPECULATE, check=None)))
        assert studies.study(config) == 0
    return open_run(workflow.run_path_of(config))


def test_the_whole_cache_gives_what_the_decode_stage_measured(studied: Run) -> None:
    keys = ["prompt_id", "repetition"]
    rows = studied.retention_runs.query("policy == 'all' and model == 'verifier'").set_index(keys).sort_index()
    decoded = studied.decode_runs.set_index(keys).sort_index()
    assert len(rows) == 4
    for name in ("mean_expected_accept", "mean_entropy_bits"):
        assert rows[name].tolist() == pytest.approx(decoded[name].tolist(), abs=1e-5)
    assert (rows["n_tokens"] == decoded["n_tokens"]).all()


def test_the_answers_and_the_page_speak_of_it(studied: Run) -> None:
    assert {"all", "first_and_last", "last", "random_and_last"} == set(studied.retention_costs["policy"])
    assert 'id="retention"' in (studied.path / "report.html").read_text(encoding="utf-8")
    claims = studied.claims.query("family == 'retention'")
    assert claims["n"].max() <= len(TWO)


def test_it_is_asked_for_by_its_setting_alone(tmp_path: Path, pair: Pair) -> None:
    config = configuration(tmp_path, TWO)
    assert studies.stages_of(config) == [*studies.STAGES]
    asked = configuration(tmp_path, TWO, "retention.budgets=0.5")
    assert studies.stages_of(asked) == [*studies.STAGES, RETENTION]
    prompts = workflow.render_all(workflow.chosen_prompts(config)[0], pair, config)[0]
    for stage in (DECODE, SPECULATE):
        one, other = (
            [task.key for task in tasks_of(stage, c, shared_parts(stage, c, pair), prompts)] for c in (config, asked)
        )
        assert one == other, "no other result is measured again"


def test_results_are_kept_apart_by_budgets(tmp_path: Path, pair: Pair) -> None:
    keys = set()
    for budgets in ("0.5", "[0.5,0.75]"):
        config = configuration(tmp_path, TWO, f"retention.budgets={budgets}")
        prompts = workflow.render_all(workflow.chosen_prompts(config)[0], pair, config)[0]
        keys |= {task.key for task in tasks_of(RETENTION, config, shared_parts(RETENTION, config, pair), prompts)}
    assert len(keys) == 4


def test_versions_that_alter_the_models_are_left_out(tmp_path: Path, pair: Pair) -> None:
    config = configuration(tmp_path, TWO, "retention.budgets=0.5", "prompts.versions=temperatures")
    prompts = workflow.prompt_versions(config, workflow.chosen_prompts(config)[0], pair)
    rendered = workflow.render_all(prompts, pair, config)[0]
    units = [unit for prompt in rendered for unit in RETENTION.units(config, prompt)]
    assert len(rendered) > len(units) == len(TWO)


def test_a_model_without_attention_functions_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = replace(tiny_pair(), draft=attention_models.language_model(attention_models.by_maps()["bloom"]))
    monkeypatch.setattr(workflow, "find_models", lambda config: lambda: pair)
    config = configuration(tmp_path, TWO, "retention.budgets=0.5")
    with pytest.raises(UserError, match="bloom model") as refused:
        studies.study(config)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "store").exists()
