import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specstudy.condition import Condition
from specstudy.config import (
    PROJECT_ROOT,
    DecodeConfig,
    PrefillConfig,
    SpecConfig,
    StudyConfig,
    all_rules,
    from_mapping,
    local_path,
    to_mapping,
)
from specstudy.errors import UserError


def test_defaults_are_those_of_the_study() -> None:
    config = StudyConfig()
    assert (config.decode.temperature, config.decode.top_p, config.decode.max_new_tokens) == (0.7, 0.9, 128)
    assert (config.decode.repetitions, config.spec.repetitions) == (3, 1)
    assert (config.spec.gamma, config.spec.stop, config.seed) == ((4,), ("none",), 0)
    assert (config.prefill.window, config.prefill.threshold) == (16, 6.0)
    assert config.retention.budgets is None


def test_a_config_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        StudyConfig().spec.gamma = (6,)


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("retention", "budgets", [0.5, 1.0]),
        ("retention", "budgets", []),
        ("spec", "gamma", 0),
        ("spec", "gamma", 65),
        ("spec", "gamma", "four"),
        ("spec", "gamma", "4"),
        ("spec", "gamma", True),
        ("spec", "gamma", 4.0),
        ("spec", "gamma", []),
        ("spec", "gamma", [2, 2]),
        ("spec", "gamma", [2, "4"]),
        ("spec", "stop", "sometimes"),
        ("spec", "stop", ["none", "sometimes"]),
        ("spec", "stop", []),
        ("spec", "stop_threshold", [0.5, -1]),
        ("spec", "temperature", [0.7, 0.7]),
        ("spec", "top_p", [0.9, 0]),
        ("spec", "proposer", ["model", "someone"]),
        ("spec", "baseline", "no"),
        ("spec", "temperature", -0.1),
        ("decode", "temperature", 5.1),
        ("decode", "temperature", 1e-40),
        ("decode", "temperature", math.nan),
        ("decode", "temperature", math.inf),
        ("decode", "temperature", "0.7"),
        ("decode", "temperature", True),
        ("decode", "temperature", 10**400),
        ("decode", "top_p", 0),
        ("decode", "top_p", 1.01),
        ("decode", "max_new_tokens", 0),
        ("decode", "repetitions", 0),
        ("prefill", "window", 0),
        ("prefill", "threshold", 0),
        ("prefill", "threshold", math.inf),
        ("prompts", "per_category", 0),
        ("prompts", "path", ""),
        ("prompts", "path", 3),
        ("prompts", "categories", ["code", "code"]),
        ("models", "name", "../elsewhere"),
        ("models", "trust_remote_code", "yes"),
        ("analysis", "confidence", 1),
        ("execution", "device", "gpu"),
        ("execution", "threads", 0),
    ],
)
def test_a_wrong_value_is_one_line_with_key_value_and_what_is_right(section: str, name: str, value: object) -> None:
    with pytest.raises(UserError) as error:
        from_mapping({section: {name: value}})
    message = str(error.value)
    assert message.startswith(f"{section}.{name} must be {all_rules()[f'{section}.{name}'].wanted}")
    assert repr(value) in message
    assert "\n" not in message


def test_a_value_that_the_user_must_give_is_asked_for() -> None:
    with pytest.raises(UserError, match=r"prompts\.path is not set"):
        from_mapping({"prompts": {"path": "???"}})


@pytest.mark.parametrize(
    ("values", "nearest"),
    [
        ({"spec": {"gama": 6}}, "spec.gamma"),
        ({"gamma": 6}, "spec.gamma"),
        ({"decode": {"temprature": 1}}, "decode.temperature"),
        ({"sed": 1}, "seed"),
        ({"promts": {}}, "prompts"),
    ],
)
def test_an_unknown_key_names_the_nearest_one(values: dict[str, object], nearest: str) -> None:
    with pytest.raises(UserError, match=f"no such key; did you mean {nearest}?"):
        from_mapping(values)


def test_a_group_must_hold_settings() -> None:
    with pytest.raises(UserError, match="spec is a group of settings; got 4"):
        from_mapping({"spec": 4})


def test_gamma_is_always_a_tuple_in_the_given_order() -> None:
    assert SpecConfig(gamma=6).gamma == (6,)
    assert from_mapping({"spec": {"gamma": [8, 2]}}).spec.gamma == (8, 2)


def test_every_combination_is_a_setting_in_the_order_of_the_lists() -> None:
    spec = from_mapping(
        {"spec": {"gamma": [8, 4], "stop": ["none", "entropy", "bound"], "stop_threshold": [None, 0.5, 0.3]}}
    ).spec
    assert [(s.gamma, s.rule) for s in spec.conditions] == [
        (gamma, rule) for gamma in (8, 4) for rule in ("none", "entropy 0.5", "bound 0.3")
    ]
    assert spec.primary == Condition(4, "model", "none", 0.7, 0.9)
    grid = from_mapping(
        {"spec": {"temperature": [1, 0.3], "top_p": [0.5, 0.9], "proposer": ["early_exit", "model"]}}
    ).spec
    assert len(set(grid.conditions)) == 8
    assert grid.primary == Condition(4, "early_exit", "none", 1.0, 0.5)


@pytest.mark.parametrize(("gammas", "primary"), [([1, 8], 1), ([8, 2], 2), ([5, 3], 5), ([3, 5], 3), ([2, 4], 4)])
def test_the_primary_gamma_is_the_nearest_to_four_and_the_first_of_two(gammas: list[int], primary: int) -> None:
    assert from_mapping({"spec": {"gamma": gammas}}).spec.primary.gamma == primary


def test_one_threshold_is_for_every_rule_and_none_has_none() -> None:
    spec = from_mapping({"spec": {"stop": ["none", "entropy", "bound"], "stop_threshold": 0.4}}).spec
    assert spec.rules == [("none", None), ("entropy", 0.4), ("bound", 0.4)]
    assert from_mapping({"spec": {"stop": ["entropy", "entropy"], "stop_threshold": [0.4, 0.5]}}).spec.rules == [
        ("entropy", 0.4),
        ("entropy", 0.5),
    ]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"stop": ["none", "entropy"], "stop_threshold": [0.1, 0.2, 0.3]}, "a list as long as spec.stop (2); got 3"),
        ({"stop": "entropy", "stop_threshold": [0.1, 0.2]}, "a list as long as spec.stop (1); got 2"),
        ({"stop": ["none", "entropy"], "stop_threshold": None}, "spec.stop_threshold of entropy must be a number"),
        ({"stop": ["entropy", "entropy"]}, "listed twice"),
        ({"stop": ["none", "none"], "stop_threshold": [0.1, 0.2]}, "listed twice"),
        ({"stop": "bound", "proposer": ["model", "prompt_lookup"]}, "spec.proposer=prompt_lookup has none"),
    ],
)
def test_stop_rules_that_do_not_fit_together_are_one_line(spec: dict[str, object], said: str) -> None:
    with pytest.raises(UserError) as error:
        from_mapping({"spec": spec})
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_sampling_of_spec_follows_decode_unless_set() -> None:
    followed = from_mapping({"decode": {"temperature": 0, "top_p": 0.5}, "spec": {"temperature": None}})
    assert (followed.spec.temperature, followed.spec.top_p) == ((0.0,), (0.5,))
    assert from_mapping({"decode": {"temperature": 0}, "spec": {"temperature": [1, 0]}}).spec.temperature == (1.0, 0.0)


def test_categories_may_be_numbers() -> None:
    assert from_mapping({"prompts": {"categories": [3, "code"]}}).prompts.categories == ("3", "code")
    with pytest.raises(UserError, match=r"prompts\.categories must be a string"):
        from_mapping({"prompts": {"categories": [True]}})


def test_whole_numbers_become_floats_where_a_setting_is_real() -> None:
    assert isinstance(DecodeConfig(temperature=1).temperature, float)
    assert isinstance(PrefillConfig(threshold=5).threshold, float)


@given(
    gamma=st.lists(st.integers(1, 64), min_size=1, max_size=5, unique=True),
    temperature=st.just(0.0) | st.floats(1e-4, 5),
    top_p=st.floats(0, 1, exclude_min=True),
    per_category=st.none() | st.integers(1, 50),
    path=st.text(min_size=1).filter(str.strip),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_mapping_gives_the_same_config_back(
    gamma: list[int], temperature: float, top_p: float, per_category: int | None, path: str, seed: int
) -> None:
    config = from_mapping(
        {
            "spec": {"gamma": gamma, "temperature": temperature},
            "decode": {"top_p": top_p},
            "prompts": {"path": path, "per_category": per_category},
            "seed": seed,
        }
    )
    assert (config.spec.gamma, config.spec.temperature, config.spec.top_p) == (tuple(gamma), (temperature,), (top_p,))
    assert from_mapping(to_mapping(config)) == config


def test_relative_paths_start_at_the_project_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert local_path("data/x") == PROJECT_ROOT / "data/x"
    assert str(local_path("/a/b")) == "/a/b"
    assert str(local_path("~/x")) == "/home/someone/x"
