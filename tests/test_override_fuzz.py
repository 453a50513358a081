"""Whatever words a command gets: a configuration, or one line; never a traceback, and nothing written."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import last_line, nothing_written

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


def assert_configurations_or_line(given_words: list[str], sweep: bool) -> None:
    with nothing_written():
        try:
            configs = sweep_configs(prepare(given_words, sweep=True)) if sweep else [study_config(given_words)]
        except UserError:
            return
    for config in configs:
        assert isinstance(config, StudyConfig)
        assert from_mapping(to_mapping(config)) == config


several_words = st.lists(words.filter(lambda word: not word.startswith("-")), min_size=1, max_size=3)
FEW = settings(max_examples=30)
MANY = settings(max_examples=500)


@FEW
@given(several_words, st.booleans())
def test_any_words_are_configurations_or_refused(given_words: list[str], sweep: bool) -> None:
    assert_configurations_or_line(given_words, sweep)


@FEW
@given(several_words)
def test_any_words_end_in_one_line(given_words: list[str]) -> None:
    assert last_line(given_words)


@pytest.mark.long
@pytest.mark.timeout(1800)
@MANY
@given(several_words)
def test_five_hundred_sweeps(given_words: list[str]) -> None:
    assert_configurations_or_line(given_words, sweep=True)


@pytest.mark.long
@pytest.mark.timeout(1800)
@MANY
@given(several_words)
def test_five_hundred_commands(given_words: list[str]) -> None:
    assert_configurations_or_line(given_words, sweep=False)
    assert last_line(given_words)
