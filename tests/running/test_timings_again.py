"""What is kept of when and under which load was timed, and timings taken again on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_study import configuration

from specstudy import open_run
from specstudy.analysis import machine
from specstudy.measure import speculation_records
from specstudy.running import workflow
from specstudy.running.stages.speculate import SPECULATE
from specstudy.tables import manifest

pytestmark = pytest.mark.usefixtures("tiny_models")

PROMPTS = {"a": "Say one word.", "b": "Say two words.", "c": "Say three words."}


def speculate(directory: Path, monkeypatch: pytest.MonkeyPatch, *loads: float, remeasure: str = "none") -> Any:
    """A run of SPECULATE at these loads, one after the other, the last for all further prompts."""
    left = list(loads)
    monkeypatch.setattr(speculation_records, "load_average", lambda: left.pop(0) if len(left) > 1 else left[0])
    monkeypatch.setattr(manifest, "load_average", lambda: loads[0])
    monkeypatch.setattr(machine, "SPREAD", float("inf"))  # of whatever else this machine does now
    assert workflow.run(configuration(directory, PROMPTS, f"execution.remeasure={remeasure}"), [SPECULATE]) == 0
    return open_run(directory / "latest")


def told(run: Any) -> tuple[list[float], int]:
    return run.spec_runs["load_average"].tolist(), run.manifest["stages"]["speculate"]["n_reused"]


def test_timings_keep_their_load_and_are_taken_again_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = speculate(tmp_path, monkeypatch, 0.9, 3.1, 1.2)
    assert told(first) == ([0.9, 3.1, 1.2], 0)
    reused = speculate(tmp_path, monkeypatch, 0.7)
    assert told(reused) == ([0.9, 3.1, 1.2], 3)
    assert reused.manifest["time"]["load_average"] == 0.9
    then, now = (run.manifest["stages"]["speculate"] for run in (first, reused))
    assert {**now, "n_reused": 0} == then
    of_the_busy = speculate(tmp_path, monkeypatch, 0.7, remeasure="busy")
    assert of_the_busy.path == first.path
    assert told(of_the_busy) == ([0.9, 0.7, 1.2], 2)
    assert of_the_busy.manifest["time"]["load_average"] == 0.7
    assert told(speculate(tmp_path, monkeypatch, 0.6, remeasure="all")) == ([0.6, 0.6, 0.6], 0)
