"""Real make, real recipes of the project's Makefile: what the user typed is what the command gets."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specstudy.command_line import makeflags
from specstudy.config import PROJECT_ROOT
from specstudy.errors import UserError
from specstudy.overrides import study_config

PRINT_WORDS = f"""
import json, os, sys
names = sorted(os.environ)
sys.path.insert(0, {str(PROJECT_ROOT / "src")!r})
from specstudy.command_line import makeflags
print(json.dumps([sys.argv[1:], makeflags.override_words(os.environ), names]))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that is set up, whose `study` prints the words that reach it."""
    root = tmp_path_factory.mktemp("project")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(PROJECT_ROOT / name, root)
    (root / "pipelines").mkdir()
    shutil.copy(PROJECT_ROOT / "pipelines/setup.py", root / "pipelines")
    (root / "pipelines/study.py").write_text(PRINT_WORDS)
    (root / ".venv/bin").mkdir(parents=True)
    (root / ".venv/bin/python").symlink_to(sys.executable)
    (root / ".venv/ready").touch()
    return root


def make(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=directory,
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def words_that_arrive(project: Path, *arguments: str, **environment: str) -> list[str]:
    finished = make(project, *arguments, **environment)
    assert finished.returncode == 0, finished.stderr
    words: list[str] = json.loads(finished.stdout)[1]
    return words


def test_words_arrive_in_order(project: Path) -> None:
    assert words_that_arrive(project, "study") == []
    assert words_that_arrive(project, "study", "spec.gamma=6", "prompts=factual") == ["spec.gamma=6", "prompts=factual"]
    assert words_that_arrive(project, "spec.gamma=6", "study") == ["spec.gamma=6"]


def test_a_sweep_is_the_study_with_an_option(project: Path) -> None:
    finished = make(project, "sweep", "spec.gamma=2,4")
    assert json.loads(finished.stdout)[:2] == [["--from-make", "--multirun"], ["spec.gamma=2,4"]]


NASTY_VALUES = [
    "a b",
    "it's",
    'say "no"',
    "[1,2]",
    "{a: 1, b: [2, 3]}",
    "(x)",
    "$HOME",
    "$$",
    "$(shell touch executed)",
    "${HOME}",
    "`touch executed`",
    "a;touch executed",
    "a && touch executed",
    "a|b>c<d",
    "#comment",
    "~/x.jsonl",
    "C:\\dir\\",
    "\\",
    "\\\\ \\ ",
    "=x==y",
    ":=x",
    "--",
    "-- y=3",
    "%*?!@^+~",
    "é 日本 \U0001f600",
    "",
    "two\nlines",
    "tab\there ",
]


@pytest.mark.parametrize("value", NASTY_VALUES)
def test_a_value_may_hold_anything_and_none_of_it_runs(project: Path, value: str) -> None:
    given = [f"prompts.path={value}", f"seed={value}"]  # a name that a shell accepts, and one that it does not
    assert words_that_arrive(project, "study", *given) == given
    assert not list(project.rglob("executed"))


MAKES_BLANKS = " \t\n\v\f\r"
VALUES = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=30)
VALUES_OF_SYNTAX = st.text("$(){}[]\\\"'`;&|=: ~#,\t\n%ax-+é", max_size=15)


@given(st.lists(VALUES | VALUES_OF_SYNTAX, min_size=1, max_size=12))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_arrives_less_blanks_at_its_start(project: Path, values: Sequence[str]) -> None:
    words = [f"some.key{index}={value.lstrip(MAKES_BLANKS)}" for index, value in enumerate(values)]
    assert words_that_arrive(project, "study", *words) == words


@pytest.mark.parametrize(
    ("typed", "arrives"),
    [
        ("spec.gamma:=6", "spec.gamma=6"),
        ("spec.gamma::=6", "spec.gamma=6"),
        ("spec.gamma?=6", "spec.gamma=6"),
        ("spec.gamma+=6", "spec.gamma=6"),
        ("+spec.gamma=6", "+spec.gamma=6"),
        ("++spec.gamma=6", "++spec.gamma=6"),
        ("~spec.gamma=6", "~spec.gamma=6"),
        ("spec.gamma= 6", "spec.gamma=6"),
        ("hydra/launcher=joblib", "hydra/launcher=joblib"),
    ],
)
def test_other_signs_of_assignment(project: Path, typed: str, arrives: str) -> None:
    assert words_that_arrive(project, "study", typed) == [arrives]


@pytest.mark.parametrize("option", ["-j2", "-k", "-s", "-i", "-Ijust-a-folder"])
def test_options_of_make_are_no_overrides(project: Path, option: str) -> None:
    assert words_that_arrive(project, option, "study", "spec.gamma=6") == ["spec.gamma=6"]


def test_a_dry_run_runs_nothing(project: Path) -> None:
    assert make(project, "-n", "study", "spec.gamma=6").stdout == ".venv/bin/python pipelines/study.py --from-make\n"


def test_the_environment_and_makes_own_variables_are_no_overrides(project: Path) -> None:
    assert words_that_arrive(project, "study", "PYTHON=python3.12", CI="true", seed="5", MAKEFLAGS="k") == []


def test_another_makes_variables_and_options_are_no_overrides(project: Path, tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(f"all:\n\t@$(MAKE) -C {project} study spec.gamma=6\n")
    assert words_that_arrive(tmp_path, "-k", "-j2", "CC=gcc", "V=1", "all", CI="true") == ["spec.gamma=6"]


def test_overrides_are_not_exported(project: Path) -> None:
    environment = json.loads(make(project, "study", "seed=3", "models=gpt2").stdout)[2]
    assert not {"seed", "models"}.intersection(environment)


def test_help_is_the_default_and_names_every_target_with_an_example() -> None:
    finished = make(PROJECT_ROOT)
    assert (finished.returncode, finished.stderr) == (0, "")
    targets = "study prefill decode speculate analyze sweep figures test test-long lint help setup doctor runs show"
    for target in f"{targets} compare distill bench".split():
        assert f"make {target}" in finished.stdout
        assert f"\n{target}:" in "\n" + make(PROJECT_ROOT, "-n", "-p").stdout, f"no target {target}"


def test_what_would_break_a_start_does_not_reach_a_command(project: Path) -> None:
    finished = make(project, "study", PYTHONSAFEPATH="1", PYTHONOPTIMIZE="2")
    assert not {"PYTHONSAFEPATH", "PYTHONOPTIMIZE"} & set(json.loads(finished.stdout)[2])


def test_an_old_python_is_refused_in_one_line(project: Path, tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(project / name, tmp_path)
    (tmp_path / "pipelines").mkdir()
    shutil.copy(project / "pipelines/setup.py", tmp_path / "pipelines")
    finished = make(tmp_path, "setup", "PYTHON=/bin/false")
    assert finished.returncode == 2
    assert finished.stderr.splitlines()[0] == (
        "error: /bin/false is not Python 3.11 or newer; name one: make setup PYTHON=python3.11"
    )


@pytest.mark.parametrize("word", ["spec.gamma=6", "a=$(shell touch pwned)", "a=`touch pwned`", "a='; touch pwned"])
def test_a_target_without_overrides_refuses_them(project: Path, word: str) -> None:
    finished = make(project, "help", word)
    refusal = "error: make {} takes no overrides; leave out what follows it"
    assert finished.stderr.splitlines()[0] == refusal.format("help")
    assert (finished.returncode, finished.stdout) == (2, "")
    assert not (project / "pwned").exists()
    for target in ("setup", "lint", "test"):
        assert make(project, target, word).stderr.splitlines()[0] == refusal.format(target)


@pytest.mark.parametrize("word", ["FOO=1", "SHELL=/bin/false", "COMMANDS=", "RUN=/bin/false", "CHECKED=x"])
def test_a_variable_that_does_nothing_arrives_and_is_refused_there(project: Path, word: str) -> None:
    assert words_that_arrive(project, "study", word) == [word]
    with pytest.raises(UserError, match=f"{word.partition('=')[0]}: no such key"):
        study_config([word])


@pytest.mark.parametrize("words", [[], ["PYTHON=python3"]])
def test_and_is_silent_where_none_is_given(project: Path, words: list[str]) -> None:
    assert make(project, "help", *words).stderr == make(project, "setup", *words).stderr == ""


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("", []),
        ("k", []),
        ("k -j2 --jobserver-auth=3,4", []),
        ("-- a=1", ["a=1"]),
        (" -- b=2 a=1", ["a=1", "b=2"]),
        ("kw --jobserver-fds=3,4 -j -- a=1 ", ["a=1"]),  # make 3.81 ends with a blank
    ],
)
def test_forms_of_makeflags(flags: str, words: list[str]) -> None:
    assert makeflags.override_words({"MAKEFLAGS": flags}) == words
    assert makeflags.override_words({}) == []
