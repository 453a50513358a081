"""Whatever words a command gets: a configuration, or one line; never a traceback, and nothing written."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specstudy.config import StudyConfig, all_rules, from_mapping, to_mapping
from specstudy.errors import UserError
from specstudy.overrides import groups, prepare, study_config, sweep_configs

OTHER_KEYS = "spec nosuch spec.gama hydra hydra.run.dir hydra/launcher experiment"
KEYS = [*all_rules(), *groups(), *OTHER_KEYS.split(" ")]
PIECES = "null true 1 0 -1 1e400 .nan inf [] [1,2] [[1]] {} {a:1} ' \" \\ ${ ${seed} ${oc.env:HOME} ??? 2,4 1,,2 a=b"
FUNCTIONS = "choice(1,2) range(1,4) interval(0,1) glob(*) shuffle(1,2) sort(2,1) int(2) str(x)"
GRAMMAR = [*PIECES.split(" "), *FUNCTIONS.split(" "), "smoke", "local", "../..", "\x00", "\n", "\ud800", " "]
text = st.text(st.characters() | st.sampled_from(string.punctuation), max_size=12)
values = st.lists(st.sampled_from(GRAMMAR) | text, max_size=3).map("".join)
prefixes = st.sampled_from(["", "", "", "+", "++", "~", " "])
words = st.builds(
    "{}{}{}{}".format, prefixes, st.sampled_from(KEYS) | text, st.sampled_from(["=", "=", "=", "", "=="]), values
)


def assert_configuration_or_line(given_words: list[str], sweep: bool) -> None:
    try:
        configs = sweep_configs(prepare(given_words, sweep=True)) if sweep else [study_config(given_words)]
    except UserError:
        return
    for config in configs:
        assert isinstance(config, StudyConfig)
        assert from_mapping(to_mapping(config)) == config


@pytest.fixture(autouse=True)
def _nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


FEW = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MANY = settings(FEW, max_examples=500)


@FEW
@given(st.lists(words, min_size=1, max_size=3), st.booleans())
def test_any_words_are_a_configuration_or_a_line(tmp_path: Path, given_words: list[str], sweep: bool) -> None:
    assert_configuration_or_line(given_words, sweep)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("sweep", [False, True])
@MANY
@given(st.lists(words, min_size=1, max_size=3))
def test_a_thousand_times(tmp_path: Path, sweep: bool, given_words: list[str]) -> None:
    assert_configuration_or_line(given_words, sweep)
    assert list(tmp_path.iterdir()) == []
