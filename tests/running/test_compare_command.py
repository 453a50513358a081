from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import Plan, make_tables
from synthetic_run import write_run

from specstudy.command_line import entry
from specstudy.running import compare

PLAN = Plan(n_per_category=1, n_answer_tokens=6)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two runs of gamma 4 and 6 in outputs/, the second one the latest."""
    monkeypatch.setattr(compare, "OUTPUT_DIR", tmp_path)
    monkeypatch.chdir(tmp_path.parent)
    a, b = (
        write_run(tmp_path, make_tables(replace(PLAN, gammas=(gamma,))), {"spec": {"gamma": [gamma]}})
        for gamma in (4, 6)
    )
    return a, b


def status_of(words: list[str], monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(sys, "argv", ["compare.py", *words])
    with pytest.raises(SystemExit) as exited:
        entry.command(compare.compare, names=["a", "b"], required=["a", "b"])
    return exited.value.code


def test_runs_by_name_by_path_and_the_latest(
    runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = runs
    outputs = []
    for words in ([f"a={a.name}", f"b={b.name}"], [f"a={a}", f"b={b}/"], [f"a={a.name}", "b=latest"]):
        assert status_of(words, monkeypatch) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] == outputs[2]
    lines = [" ".join(line.split()) for line in outputs[0].splitlines()]
    assert lines[1].startswith(f"a {a.name} 20")
    assert lines[2].startswith(f"b {b.name} 20")
    assert "spec.gamma 4 6" in lines
    assert "gamma 4 (a), gamma 6 (b)" in lines


def test_runs_elsewhere_are_called_by_their_path(tmp_path: Path, runs: tuple[Path, Path]) -> None:
    assert compare.title(runs[0]) == runs[0].name
    assert compare.title(tmp_path / "other" / "made-up-1") == str(tmp_path / "other" / "made-up-1")


def test_a_run_that_is_not_there_is_one_line(
    runs: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").mkdir()
    for given, said in [
        (
            "nosuch",
            f"error: b=nosuch: no such directory, here or in {tmp_path}; `make runs` lists the runs there are\n",
        ),
        ("empty", f"error: no run at {tmp_path}/empty; `make runs` lists the runs there are\n"),
    ]:
        assert status_of([f"a={runs[0].name}", f"b={given}"], monkeypatch) == 2
        assert capsys.readouterr() == ("", said)


def test_runs_without_a_common_prompt_are_one_line(
    runs: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = write_run(tmp_path, make_tables(replace(PLAN, categories=("poems",))), {"seed": 1})
    assert status_of([f"a={runs[0].name}", f"b={other.name}"], monkeypatch) == 2
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert output.err.startswith("error: a and b have no prompt in common")
    assert output.err.endswith(
        f"{runs[0].name} has 5, the first ambiguous-01, {other.name} has 1, the first poems-01\n"
    )
