import json
import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specstudy.config import DecodeConfig, RetentionConfig, StudyConfig, all_rules, to_mapping
from specstudy.errors import UserError
from specstudy.overrides import choices, groups, prepare, study_config, sweep_configs


def test_the_yaml_files_and_the_dataclasses_have_the_same_defaults() -> None:
    assert study_config([]) == StudyConfig()


@pytest.mark.parametrize(
    "word", [f"{group}={choice}" for group in groups() for choice in choices(group) if choice != "file"]
)
def test_every_choice_composes(word: str) -> None:
    study_config([word])


def test_every_setting_can_be_given_by_its_name() -> None:
    told = to_mapping(StudyConfig())
    words = []
    for key in all_rules():
        section, _, name = key.rpartition(".")
        value = told[section][name] if section else told[name]
        words.append(f"{key}={value if isinstance(value, str) else json.dumps(value)}")
    config = study_config(words)
    assert (config.spec, config.decode, config.retention) == (StudyConfig().spec, DecodeConfig(), RetentionConfig())


def test_overrides_change_what_they_name_and_nothing_else() -> None:
    config = study_config(["spec.gamma=6", "prompts=factual"])
    assert (config.spec.gamma, config.prompts.categories, config.prompts.name) == ((6,), ("factual",), "factual")
    assert (config.decode, config.models) == (StudyConfig().decode, StudyConfig().models)


def test_a_list_and_a_mapping_can_be_given() -> None:
    assert study_config(["spec.gamma=[2,4,8]"]).spec.gamma == (2, 4, 8)
    assert study_config(["spec={gamma: 3, stop: entropy}"]).spec.stop == ("entropy",)


def test_the_smoke_experiment_is_small_and_can_be_overridden() -> None:
    smoke = study_config(["experiment=smoke"])
    assert (smoke.prompts.per_category, smoke.decode.max_new_tokens, smoke.spec.gamma) == (1, 24, (2,))
    assert study_config(["experiment=smoke", "spec.gamma=3", "prompts=code"]).prompts.categories == ("code",)


def test_the_experiments_are_what_they_say() -> None:
    gammas = study_config(["experiment=gamma_sweep"])
    assert [condition.gamma for condition in gammas.spec.conditions] == [1, 2, 3, 4, 5, 6, 7, 8]
    rules = study_config(["experiment=stop_rules"]).spec
    assert {condition.gamma for condition in rules.conditions} >= {4, 8}
    assert {condition.stop for condition in rules.conditions} == {"none", "entropy", "bound"}
    grid = study_config(["experiment=sampling_sweep"]).spec
    cells = {(condition.temperature, condition.top_p) for condition in grid.conditions}
    assert cells == {(t, p) for t in (0.01, 0.3, 0.7, 1.0) for p in (0.5, 0.9, 1.0)}
    assert (grid.gamma, grid.baseline, rules.baseline) == ((4,), False, True)
    dropping = study_config(["experiment=kv_retention"])
    assert (dropping.retention.budgets, dropping.prompts.per_category) == ((0.25, 0.5, 0.75), 4)


def test_sampling_of_spec_follows_decode_until_set() -> None:
    assert study_config(["decode.temperature=0"]).spec.temperature == (0,)
    assert study_config(["decode.temperature=0", "spec.temperature=1"]).spec.temperature == (1,)
    assert study_config(["decode.top_p=0.5", "spec.top_p=null"]).spec.top_p == (0.5,)


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("spec.gama=6", ["spec.gama", "did you mean spec.gamma?", "spec.stop_threshold"]),
        ("spec={gama: 6}", ["spec.gama", "did you mean spec.gamma?"]),
        ("gamma=6", ["did you mean spec.gamma?"]),
        ("promts=factual", ["did you mean prompts?"]),
        ("spec.gamma.x=6", ["spec.gamma.x: no such key"]),
        ("spec.gamma=four", ["spec.gamma", "integer from 1 to 64", "'four'"]),
        ("spec.gamma=0", ["spec.gamma", "integer from 1 to 64", "got 0"]),
        ('spec.gamma="4"', ["spec.gamma", "got '4'"]),
        ("spec.gamma=true", ["spec.gamma", "got True"]),
        ("decode.top_p=0", ["decode.top_p", "above 0 and at most 1"]),
        ("decode.temperature=nan", ["decode.temperature", "got nan"]),
        ("decode.temperature=inf", ["decode.temperature", "got inf"]),
        ("seed=1e3", ["seed", "integer"]),
        (
            "prompts=nosuch",
            [
                "prompts=nosuch",
                "ambiguous, code, confirm, creative, factual, file, hidden_positions, math, poisoned, "
                "sinks_lowered, study200, study50, temperatures",
            ],
        ),
        ("prompts=factul", ["did you mean factual?"]),
        ("prompts=[factual,code]", ["no such choice"]),
        ("prompts=null", ["prompts=null", "no such choice"]),
        ("models=nosuch", ["models=nosuch", "gpt2, qwen2.5, qwen2.5-1.5b-draft, smollm2"]),
        ("experiment=nosuch", ["experiment=nosuch", "smoke"]),
        ("prompts=file", ["prompts.path is not set"]),
        ("spec=4", ["spec=4", "default"]),
        ("spec.gamma=[1,2", ["spec.gamma=[1,2", "not understood", "key=value"]),
        ("=3", ["=3", "not understood"]),
        ("foo", ["foo", "not understood"]),
        ("spec.gamma=2,4", ["spec.gamma=[a,b]", "make sweep"]),
        ("~spec.gamma", ["cannot be removed"]),
        ("~spec.gamma=4", ["cannot be removed"]),
        ("spec.gamma=${decode.nosuch}", ["decode.nosuch"]),
        ("hydra.nosuch=3", ["hydra.nosuch: does nothing here"]),
        ("hydra.run.dir=x", ["hydra.run.dir: does nothing here", "hydra.sweep.dir"]),
        ("+hydra.job.name=x", ["hydra.job.name: does nothing here"]),
        ("hydra/launcher=joblib", ["hydra/launcher: does nothing here", "sweeps take hydra/launcher"]),
        ("prompts@x=factual", ["prompts@x"]),
    ],
)
def test_a_wrong_word_is_one_line_of_ours(word: str, parts: list[str]) -> None:
    with pytest.raises(UserError) as error:
        study_config([word])
    message = str(error.value)
    assert "\n" not in message
    assert "\x1b" not in message
    assert "HYDRA_FULL_ERROR" not in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize("prefix", ["+", "++"])
def test_a_leading_plus_changes_nothing(prefix: str) -> None:
    assert study_config([f"{prefix}spec.gamma=6", f"{prefix}experiment=smoke"]).spec.gamma == (6,)


NASTY_TEXTS = [
    "/a b/c=(1)$x",
    '/it\'s "quoted"',
    "/comma,brace{a}[b]",
    "/${HOME}/\\${x}\\\\${y}",
    "/trailing backslash\\",
    "/trailing\\\\",
    "/é/日本/\U0001f600",
    "/a;b&c|d<e>f`g`*?#!%@^~:",
    "/new\nline\tand tab",
    "/???",
    "/ends with blank ",
]


@given(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")).map(lambda text: "/" + text))
@settings(max_examples=60)
@example("/a b/c=(1)$x")
@example("/${HOME}/\\${x}\\\\${y}'\\'\\")
def test_a_path_may_hold_anything(path: str) -> None:
    assert study_config([f"prompts.path={path}"]).prompts.path == str(Path(path))


@pytest.mark.parametrize("path", NASTY_TEXTS)
@pytest.mark.parametrize("key", ["verifier", "draft"])
def test_a_model_may_be_named_anything(key: str, path: str) -> None:
    assert getattr(study_config([f"models.{key}={path}"]).models, key) == path


def test_paths_that_the_user_gives_start_where_the_command_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    (tmp_path / "my model").mkdir()
    config = study_config(["prompts.path=mine.jsonl", "output_dir=out", "models.verifier=my model", "models.draft=~/d"])
    assert config.prompts.path == str(tmp_path / "mine.jsonl")
    assert config.output_dir == str(tmp_path / "out")
    assert config.models.verifier == str(tmp_path / "my model")
    assert config.models.draft == "/home/someone/d"


def test_a_hub_id_stays_what_it_is() -> None:
    assert study_config(["models.verifier=Qwen/Qwen2.5-0.5B"]).models.verifier == "Qwen/Qwen2.5-0.5B"
    assert study_config(["models.verifier=embedded:smollm2"]).models.verifier == "embedded:smollm2"


def test_a_run_is_not_named_after_models_or_prompts_that_it_does_not_use() -> None:
    assert study_config(["models.verifier=/m"]).models.name == "custom"
    assert study_config(["models.verifier=/m", "models.name=mine"]).models.name == "mine"
    assert study_config(["prompts.path=/p.jsonl"]).prompts.name == "file"


def test_a_sweep_has_a_config_for_each_combination() -> None:
    words = ["spec.gamma=2,4", "prompts=factual,code", "models.draft=/a b,/c(d)", "seed=3"]
    configs = sweep_configs(prepare(words, sweep=True))
    assert len(configs) == 8
    assert {(c.spec.gamma[0], c.prompts.name, c.models.draft, c.seed) for c in configs} == {
        (gamma, name, draft, 3) for gamma in (2, 4) for name in ("factual", "code") for draft in ("/a b", "/c(d)")
    }


@pytest.mark.parametrize("word", ["spec.gamma=2,0", "prompts=factual,nosuch", "spec.gama=2,4", "spec.gamma=range(a)"])
def test_a_wrong_point_of_a_sweep_is_refused(word: str) -> None:
    with pytest.raises(UserError):
        sweep_configs(prepare([word], sweep=True))


def test_composing_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study_config(["spec.gamma=6"])
    assert os.listdir(tmp_path) == []
