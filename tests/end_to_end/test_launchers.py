"""A sweep whose points are started by a launcher of Hydra, in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import run

from specstudy import open_run

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
pytest.importorskip("hydra_plugins.hydra_joblib_launcher")

WORDS = (
    "prompts.categories=[factual]",
    "prompts.per_category=1",
    "decode.max_new_tokens=4",
    "execution.threads=1",
    "hydra/launcher=joblib",
    "hydra.launcher.n_jobs=2",
)


def test_points_run_in_processes_of_the_joblib_launcher(tmp_path: Path) -> None:
    finished = run("decode", "-m", *WORDS, "decode.temperature=0,0.5", f"output_dir={tmp_path}")
    assert finished.status == 0, finished.err
    assert finished.err.count("point ") == 2
    runs = [open_run(path.parent) for path in tmp_path.glob("*/config.yaml") if not path.parent.is_symlink()]
    assert sorted(run.manifest["config"]["decode"]["temperature"] for run in runs) == [0.0, 0.5]
    assert all(run.manifest["time"]["end"] for run in runs)


def test_a_point_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    words = [*WORDS, "models.draft=data/models/smollm2-draft,/nosuch", f"output_dir={tmp_path}"]
    finished = run("decode", "-m", *words)
    assert finished.status == 2
    assert "models.draft=/nosuch: no such" in finished.err
    assert "Traceback" not in finished.err
    assert len([path for path in tmp_path.glob("*/tables/decode_runs.parquet") if path.parts[-3] != "latest"]) == 1
