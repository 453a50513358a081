"""The study from Python: what `make study` does, and the run it leaves, opened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tiny_study import PROMPTS, configuration, words

import specstudy
from specstudy.errors import UserError
from specstudy.report import figures
from specstudy.running import workflow


@pytest.mark.usefixtures("tiny_models")
def test_a_study_from_python_is_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figures, "DRAWERS", {"by_category": figures.DRAWERS["by_category"]})
    chosen = [*words(tmp_path), "spec.gamma=2", "analysis.bootstrap_samples=20"]
    run = specstudy.run_study(overrides=chosen)
    assert run.path == workflow.run_path_of(configuration(tmp_path, PROMPTS, "analysis.bootstrap_samples=20"))
    assert run.config["spec"]["gamma"] == [2]
    assert sorted(run.table("spec_runs")["prompt_id"]) == sorted(PROMPTS)
    assert {"claims", "correlations"} <= set(run.tables)
    assert run.manifest["time"]["end"]
    assert str(run.path / "report.html") in capsys.readouterr().out.replace("\n", "").replace("│", "").replace(" ", "")


def test_what_the_user_can_mend_is_raised(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"spec.gama: no such key; did you mean spec.gamma\?"):
        specstudy.run_study(["spec.gama=6", f"output_dir={tmp_path / 'out'}"])
    with pytest.raises(UserError, match=r"prompts.path=/nosuch.jsonl: no such file"):
        specstudy.run_study(["prompts=file", "prompts.path=/nosuch.jsonl", f"output_dir={tmp_path / 'out'}"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("tiny_models")
def test_opening_a_run_needs_nothing_that_measures(tmp_path: Path) -> None:
    assert workflow.run(configuration(tmp_path), []) == 0
    script = """
import sys, specstudy
print(specstudy.open_run(sys.argv[1]).config["spec"]["gamma"])
print([name for name in sys.modules if name.startswith(("torch", "transformers", "hydra", "specstudy.running"))])
"""
    place = str(tmp_path / "latest")
    finished = subprocess.run([sys.executable, "-c", script, place], capture_output=True, text=True, timeout=60)
    assert (finished.stdout, finished.stderr) == ("[2]\n[]\n", "")
