from __future__ import annotations

import os
from pathlib import Path

import pytest

from specstudy.errors import UserError
from specstudy.tables import manifest
from specstudy.tables.listing import list_runs
from specstudy.tables.run_directory import run_directory

DEFAULTS: dict[str, object] = {"spec": {"gamma": [4]}, "seed": 0, "output_dir": "outputs"}


def make_run(output_dir: Path, started: str, gamma: int = 4, finish: bool = True) -> Path:
    config = {"spec": {"gamma": [gamma]}, "seed": 0}
    with run_directory(output_dir, models="m", prompts="p", config=config) as path:
        manifest.start(path)
        manifest.update(path, "time", {"start": started})
        manifest.update(path, "prompts", {"n_prompts": 3})
        manifest.update(path, "stages", {"prefill": {"n_done": 3, "n_failed": 1}})
        if finish:
            manifest.finish(path)
    return path


def test_runs_are_listed_with_what_differs_the_last_one_first(tmp_path: Path) -> None:
    plain = make_run(tmp_path, "2026-01-01T10:00:00+00:00")
    changed = make_run(tmp_path, "2026-01-02T10:00:00+00:00", gamma=6, finish=False)
    first, second = list_runs(tmp_path, DEFAULTS)
    assert (first.name, first.state, first.differing) == (changed.name, "not finished", {"spec.gamma": ([6], [4])})
    assert (second.name, second.state, second.differing) == (plain.name, "finished", {})
    assert second.started == "2026-01-01T10:00:00+00:00"
    assert second.n_prompts == 3
    assert second.stages == {"prefill": {"n_done": 3, "n_failed": 1}}


def test_a_run_killed_before_its_manifest_is_not_finished(tmp_path: Path) -> None:
    with run_directory(tmp_path, models="m", prompts="p", config=DEFAULTS):
        pass
    (run,) = list_runs(tmp_path, DEFAULTS)
    assert (run.state, run.started, run.n_prompts) == ("not finished", None, None)


def test_a_failed_self_check_is_listed(tmp_path: Path) -> None:
    path = make_run(tmp_path, "2026-01-01T10:00:00+00:00")
    manifest.update(path, "self_checks", {"speculate": {"passed": False}, "decode": {"passed": True}})
    (run,) = list_runs(tmp_path, DEFAULTS)
    assert (run.state, run.failed_checks) == ("finished", ["speculate"])


@pytest.mark.parametrize("name", ["manifest.json", "config.yaml"])
def test_a_damaged_run_says_so_and_hides_no_other(tmp_path: Path, name: str) -> None:
    good = make_run(tmp_path, "2026-01-01T10:00:00+00:00")
    bad = make_run(tmp_path, "2026-01-02T10:00:00+00:00", gamma=6)
    (bad / name).write_text("{")
    states = {run.name: run.state for run in list_runs(tmp_path, DEFAULTS)}
    assert states[good.name] == "finished"
    assert states[bad.name].startswith(f"cannot read {bad / name}")


def test_what_is_no_run_is_not_listed(tmp_path: Path) -> None:
    make_run(tmp_path, "2026-01-01T10:00:00+00:00")
    (tmp_path / "store" / "decode").mkdir(parents=True)
    (tmp_path / "multirun.yaml").write_text("a: 1")
    assert os.path.lexists(tmp_path / "latest")
    assert len(list_runs(tmp_path, DEFAULTS)) == 1


def test_a_directory_that_is_missing_or_none(tmp_path: Path) -> None:
    assert list_runs(tmp_path / "nosuch", DEFAULTS) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is not a directory"):
        list_runs(tmp_path / "file", DEFAULTS)
