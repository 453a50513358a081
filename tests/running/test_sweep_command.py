"""A sweep from the command line to its joint table, on tiny models."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest
from tiny_study import PROMPTS, tiny_pair, words

from specstudy.command_line import entry
from specstudy.config import StudyConfig
from specstudy.errors import UserError
from specstudy.running import workflow
from specstudy.running.stages.decode import DECODE
from specstudy.running.stages.prefill import PREFILL
from specstudy.running.stages.speculate import SPECULATE
from specstudy.running.sweep_report import report_sweep


def sweep(monkeypatch: pytest.MonkeyPatch, stage: entry.Stage, given: list[str]) -> int:
    monkeypatch.setattr(sys, "argv", ["study.py", "-m", *given])
    with pytest.raises(SystemExit) as exited:
        entry.main(stage, report_sweep)
    assert isinstance(exited.value.code, int)
    return exited.value.code


def test_finished_points_are_reported_and_failed_ones_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = tiny_pair()
    monkeypatch.setattr(workflow, "find_models", lambda config: lambda: pair)

    def study(config: StudyConfig) -> int:
        return workflow.run(config, [PREFILL, DECODE, SPECULATE])

    def study_without_gamma_2(config: StudyConfig) -> int:
        if config.spec.gamma == (2,):
            raise UserError("not this one")
        return study(config)

    given = [*words(tmp_path), "spec.gamma=1,2,3", "analysis.bootstrap_samples=100"]
    assert sweep(monkeypatch, study_without_gamma_2, given) == 2
    said = capsys.readouterr()
    assert said.err.splitlines()[-1] == "error: 1 of 3 points failed: spec.gamma=2"
    (file,) = tmp_path.rglob("sweep.parquet")
    assert file.parent.parent == tmp_path / "sweeps"
    assert {path.name for path in file.parent.iterdir()} == {"sweep.parquet", "sweep.png", "sweep.svg"}
    rows = pd.read_parquet(file)
    assert rows["spec.gamma"].tolist() == [1, 3]
    assert rows["n_prompts"].tolist() == [len(PROMPTS)] * 2
    assert all((tmp_path / run / "tables").is_dir() for run in rows["run"])
    assert str(file) in said.out.replace("\n", "")

    assert sweep(monkeypatch, study, given) == 0
    assert pd.read_parquet(file)["spec.gamma"].tolist() == [1, 2, 3]


def test_a_sweep_without_a_finished_point_has_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(config: StudyConfig) -> int:
        raise UserError("none")

    assert sweep(monkeypatch, fail, [*words(tmp_path), "spec.gamma=1,2"]) == 2
    assert not (tmp_path / "sweeps").exists()
