"""The commands on the shipped models: what they leave behind, and how they end."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from matplotlib.image import imread
from processes import STUDY_WORDS, results, run, start, stop_after

from specstudy import open_run
from specstudy.command_line import entry
from specstudy.config import PROJECT_ROOT
from specstudy.records import TABLES
from specstudy.report.figures import DRAWERS
from specstudy.running.studies import study
from specstudy.tables.manifest import is_finished
from specstudy.tables.run import Run
from specstudy.tables.run_directory import read_table
from specstudy.tables.schema import schema_of

pytestmark = pytest.mark.timeout(900)

# Not drawn for two prompts at one setting.
SEVERAL_CONDITIONS = {"acceptance_by_gamma", "tokens_by_gamma", "speedup_by_gamma", "breakeven_by_gamma"}
OF_VERSIONS = {"version_effects", "version_pairs", "imposed_entropy"}
OF_ROUTING = {"distinct_experts", "bytes_and_clock"}
NEEDS_MORE = {
    *OF_VERSIONS,
    *OF_ROUTING,
    "retention_curves",
    "lowered_sinks",
    "attention_links",
    "writing_trace",
    "head_links",
    "calibration",
    "reliability",
    "context_matrix",
    "rule_differences",
    "acceptance_by_sampling",
    *SEVERAL_CONDITIONS,
}


# `make routing` and experiment=kv_retention write the others.
WRITTEN = [name for name in TABLES if not name.startswith(("routing_", "retention_"))]


def test_the_study_leaves_tables_figures_and_a_report(study_run: Run, study_output: str) -> None:
    for name in WRITTEN:
        schema = pq.read_schema(study_run.path / "tables" / f"{name}.parquet").remove_metadata()
        assert schema.equals(schema_of(name).remove_metadata()), name
    assert study_run.errors.empty
    for name, answers in (("prefill_prompts", 1), ("decode_runs", 3), ("spec_runs", 1)):
        assert study_run.table(name)["prompt_id"].tolist() == answers * ["code-01"] + answers * ["factual-01"]
    drawn = {path.stem for path in (study_run.path / "figures").glob("*.png")}
    assert drawn >= DRAWERS.keys() - NEEDS_MORE
    assert drawn == {path.stem for path in (study_run.path / "figures").glob("*.svg")}
    assert all(imread(study_run.path / "figures" / f"{name}.png").std() > 0.01 for name in drawn)
    report = (study_run.path / "report.html").read_text()
    assert all(prompt_id in report for prompt_id in ("code-01", "factual-01"))
    assert str(study_run.path / "report.html") in study_output.replace("\n", "").replace("│", "").replace(" ", "")


def test_the_manifest_says_what_was_run(study_run: Run) -> None:
    manifest = study_run.manifest
    assert is_finished(manifest)
    assert manifest["models"]["verifier"]["note"] == "Q4_1, dequantised"
    assert manifest["execution"] == {"device": "cpu", "dtype": "float32", "threads": 1}
    assert set(manifest["stages"]) == {"prefill", "decode", "speculate"}
    assert all(stage["n_done"] == 2 and stage["n_failed"] == 0 for stage in manifest["stages"].values())
    assert manifest["config"]["spec"]["temperature"] == [0.0]


def test_analyze_answers_from_tables_alone(study_run: Run, tmp_path: Path) -> None:
    copied = tmp_path / study_run.path.name
    shutil.copytree(study_run.path, copied)
    (copied / "report.html").unlink()
    (copied / "tables/claims.parquet").unlink()
    script = f"""
import runpy, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers"):
            raise ImportError(f"{{name}} is blocked")
sys.meta_path.insert(0, Blocked())
from specstudy.report import figures
figures.DRAWERS = {{"by_category": figures.DRAWERS["by_category"]}}
sys.argv = ["analyze.py", *{STUDY_WORDS!r}, "output_dir={tmp_path}"]
runpy.run_path({str(PROJECT_ROOT / "pipelines/analyze.py")!r}, run_name="__main__")
"""
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert (copied / "report.html").is_file()
    for name in WRITTEN:
        assert read_table(copied, name).equals(read_table(study_run.path, name)), name


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["models.draft=/nosuch"], "models.draft=/nosuch: no such"),
        (["models.draft=data/prompts"], "models.draft="),
        (["models.verifier=embedded:nosuch"], "embedded:nosuch: no such embedded model"),
        (["prompts=file", "prompts.path=/nosuch.jsonl"], "prompts.path=/nosuch.jsonl: no such file"),
        (["prompts=file"], "prompts.path is not set: give prompts.path=..."),
        (["prompts.categories=[poetry]"], "category 'poetry'; there are factual"),
        (["spec.gamma=0"], "spec.gamma must be an integer"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_leaves_nothing(
    words: list[str],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda n: None)
    monkeypatch.setattr(sys, "argv", ["study.py", *words, f"output_dir={tmp_path / 'outputs'}"])
    with pytest.raises(SystemExit) as exited:
        entry.main(study)
    said = capsys.readouterr()
    assert (exited.value.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert said.err.startswith("error: ")
    assert line in said.err
    assert list(tmp_path.iterdir()) == []


DECODE_WORDS = (
    "prompts.categories=[code]",
    "prompts.per_category=3",
    "decode.max_new_tokens=24",
    "execution.threads=1",
)


def test_an_interrupted_command_says_so_in_a_line_and_goes_on_from_there(tmp_path: Path) -> None:
    words = [*DECODE_WORDS, f"output_dir={tmp_path}"]
    interrupted = stop_after(start("decode", *words), 1, tmp_path, signal.SIGINT)
    assert (interrupted.status, interrupted.out) == (130, "")
    assert interrupted.err == "interrupted; the same command goes on from here\n"
    assert list(tmp_path.rglob("*.tmp")) == []
    assert not is_finished(open_run(tmp_path / "latest").manifest)
    n_before = len(results(tmp_path))
    finished = run("decode", *words)
    assert (finished.status, finished.err) == (0, "")
    assert finished.out.splitlines()[-1] == "next   make speculate, with the same settings"
    counts = open_run(tmp_path / "latest").manifest["stages"]["decode"]
    assert (counts["n_done"], counts["n_reused"]) == (3, n_before)
