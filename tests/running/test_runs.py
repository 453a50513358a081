from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from specstudy.config import PROJECT_ROOT, SpecConfig, StudyConfig, to_mapping
from specstudy.running import runs
from specstudy.tables import manifest
from specstudy.tables.run_directory import run_directory


def make_run(output_dir: Path, config: StudyConfig) -> Path:
    kept = {key: value for key, value in to_mapping(config).items() if key != "output_dir"}
    with run_directory(output_dir, models="m", prompts="p", config=kept) as path:
        manifest.start(path)
        manifest.update(path, "time", {"start": "2026-01-02T10:33:44+01:00"})
        manifest.update(path, "prompts", {"n_prompts": 50})
        manifest.update(path, "stages", {"prefill": {"n_done": 50}, "decode": {"n_done": 48, "n_failed": 2}})
    return path


def lines_of(printed: str) -> list[list[str]]:
    """The cells of each printed line of a table."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines()]


def test_a_run_is_one_row_with_its_stages_and_differences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = SpecConfig(gamma=(6,), stop="entropy")
    path = make_run(tmp_path, StudyConfig(spec=spec, prompts=replace(StudyConfig().prompts, path="[red]here[/red]")))
    runs.runs(StudyConfig(output_dir=str(tmp_path)))
    lines = lines_of(capsys.readouterr().out)
    row = [path.name, "2026-01-02 10:33", "not finished", "prefill 50", "50"]
    assert [*row, "prompts.path [red]here[/red] (data/prompts/study50.jsonl)"] in lines
    assert ["", "", "", "decode 48, 2 failed", "", "spec.gamma 6 (4)"] in lines
    assert ["", "", "", "", "", "spec.stop entropy (none)"] in lines
    assert not [line for line in lines if line and "output_dir" in line[-1]]


def test_words_given_change_what_it_is_compared_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path, StudyConfig())
    runs.runs(StudyConfig(output_dir=str(tmp_path), spec=SpecConfig(gamma=(2, 6))))
    assert "spec.gamma 4 ([2,6])" in capsys.readouterr().out


def test_a_failed_self_check_marks_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_run(tmp_path, StudyConfig())
    manifest.update(path, "self_checks", {"speculate": {"passed": False}})
    runs.runs(StudyConfig(output_dir=str(tmp_path)))
    assert "not finished, SELF-CHECK FAILED in speculate" in capsys.readouterr().out


def test_an_empty_place_says_what_to_do(tmp_path: Path) -> None:
    command = [sys.executable, str(PROJECT_ROOT / "pipelines/runs.py"), f"output_dir={tmp_path}/no runs, [yet]"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert " ".join(done.stdout.split()) == f"no runs in {tmp_path}/no runs, [yet] yet; `make study` makes the first"
