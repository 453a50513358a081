"""Commands that are killed, or given twice at once, on the shipped models."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from processes import finish, results, run, start, stop_after

from specstudy import open_run
from specstudy.records import STAGE_TABLES
from specstudy.tables.equality import without_timing
from specstudy.tables.run_directory import read_table

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

WORDS = (
    "prompts.categories=[code,creative]",
    "prompts.per_category=2",
    "decode.max_new_tokens=8",
    "spec.gamma=2",
    "analysis.bootstrap_samples=50",
    "execution.threads=1",
)
STAGES = ("prefill", "decode", "speculate")


def token_tables(output_dir: Path) -> dict[str, object]:
    run_dir = (output_dir / "latest").resolve()
    names = (name for stage in STAGES for name in STAGE_TABLES[stage])
    return {name: without_timing(read_table(run_dir, name)).to_pylist() for name in names}


def test_killed_twice_and_started_again_equals_never_killed(tmp_path: Path) -> None:
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    assert run("study", *WORDS, f"output_dir={undisturbed}").status == 0
    words = [*WORDS, f"output_dir={killed}"]
    for n_results in (2, 7):
        assert stop_after(start("study", *words), n_results, killed, signal.SIGKILL).status == -signal.SIGKILL
    finished = run("study", *words)
    assert (finished.status, finished.err) == (0, "")
    counts = open_run(killed / "latest").manifest["stages"]
    assert counts["prefill"]["n_reused"] == 4
    assert counts["decode"]["n_reused"] >= 3
    assert token_tables(killed) == token_tables(undisturbed)
    assert list(killed.rglob("*.tmp")) == []


def test_of_two_equal_commands_at_once_the_second_waits_and_says_so(tmp_path: Path) -> None:
    words = [*WORDS, f"output_dir={tmp_path}"]
    both = [start("decode", *words), start("decode", *words)]
    ended = [finish(process) for process in both]
    assert [end.status for end in ended] == [0, 0]
    said = sorted(end.err for end in ended)
    assert said[0] == ""
    assert said[1].endswith("is in use by another command; waiting for it to end\n")
    assert open_run(tmp_path / "latest").manifest["stages"]["decode"]["n_reused"] == 4
    assert len(results(tmp_path)) == 4


def test_different_commands_at_once_share_what_they_measure(tmp_path: Path) -> None:
    both = [start("decode", *WORDS, f"spec.gamma={gamma}", f"output_dir={tmp_path}") for gamma in (2, 3)]
    assert [(end.status, end.err) for end in map(finish, both)] == [(0, "")] * 2
    assert len(results(tmp_path)) == 4
    assert len(list(tmp_path.glob("*/tables/decode_runs.parquet"))) == 2 + 1  # `latest` points to one of them
