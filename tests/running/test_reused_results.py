"""What a stage does not depend on measures nothing again, and the tables are those of a fresh run all the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import tiny
from tiny_study import CONTEXT_LENGTH, configuration

from specstudy import open_run
from specstudy.models.load import Pair
from specstudy.records import STAGE_TABLES
from specstudy.running import workflow
from specstudy.running.stages.decode import DECODE
from specstudy.running.stages.prefill import PREFILL
from specstudy.tables.equality import without_timing
from specstudy.tables.run_directory import read_table

pytestmark = pytest.mark.usefixtures("tiny_models")

PROMPTS = {"long": "Say one word in a few words, and then say another.", "short": "?"}


def tables(output_dir: Path) -> dict[str, pa.Table]:
    run_dir = (output_dir / "latest").resolve()
    names = STAGE_TABLES["prefill"] + STAGE_TABLES["decode"]
    return {name: without_timing(read_table(run_dir, name)) for name in names}


def n_reused(output_dir: Path) -> dict[str, int]:
    return {name: counts["n_reused"] for name, counts in open_run(output_dir / "latest").manifest["stages"].items()}


@pytest.mark.parametrize(
    ("changed", "reused"),
    [
        ("seed=5", {"prefill": 2, "decode": 0}),
        ("another draft", {"prefill": 2, "decode": 0}),
        ("prefill.threshold=1.5", {"prefill": 2, "decode": 2}),
        ("prefill.window=8", {"prefill": 0, "decode": 2}),
        ("spec.gamma=3", {"prefill": 2, "decode": 2}),
    ],
)
def test_only_what_depends_on_a_change_is_measured_again(
    changed: str, reused: dict[str, int], tmp_path: Path, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["decode.repetitions=1", "decode.temperature=1"]
    workflow.run(configuration(tmp_path / "first", PROMPTS, *words), [PREFILL, DECODE])
    if changed == "another draft":
        n = pair.draft.vocabulary
        other = tiny.llama(7, vocab_size=n, max_position_embeddings=CONTEXT_LENGTH)
        changed_pair = replace(pair, draft=replace(other, vocabulary=n))
        monkeypatch.setattr(workflow, "find_models", lambda config: lambda: changed_pair)
    else:
        words.append(changed)
    workflow.run(configuration(tmp_path / "first", PROMPTS, *words), [PREFILL, DECODE])
    assert n_reused(tmp_path / "first") == reused
    workflow.run(configuration(tmp_path / "fresh", PROMPTS, *words), [PREFILL, DECODE])
    assert n_reused(tmp_path / "fresh") == {"prefill": 0, "decode": 0}
    assert tables(tmp_path / "first") == tables(tmp_path / "fresh")


@pytest.mark.parametrize("threshold", [0.5, 1.5, 6.0])
def test_sinks_are_those_of_the_threshold_in_force(threshold: float, tmp_path: Path) -> None:
    workflow.run(configuration(tmp_path, PROMPTS, "prefill.threshold=4"), [PREFILL])
    workflow.run(configuration(tmp_path, PROMPTS, f"prefill.threshold={threshold}"), [PREFILL])
    run_dir = (tmp_path / "latest").resolve()
    rows = read_table(run_dir, "prefill_tokens").to_pylist()
    for flag, z in (("is_sink", "z_score"), ("is_sink_window", "z_window")):
        assert [row[flag] for row in rows] == [None if row[z] is None else row[z] > threshold for row in rows]
    long, short = read_table(run_dir, "prefill_prompts").to_pylist()
    of_long = [row for row in rows if row["prompt_id"] == "long"]
    content = [row for row in of_long if not row["is_structural"]]
    assert long["n_sinks_content"] == sum(row["is_sink"] for row in content)
    assert long["n_sinks_structural"] == sum(row["is_sink"] for row in of_long) - long["n_sinks_content"]
    assert long["context_health"] == pytest.approx(health([row["z_score"] for row in content], threshold))
    known = [row["z_window"] for row in content if row["z_window"] is not None]
    assert long["context_health_window"] == pytest.approx(health(known, threshold))
    assert (threshold > 5) == (long["context_health"] == long["context_health_window"] == 10)
    absent = ("n_sinks_structural", "n_sinks_content", "context_health", "context_health_window")
    assert [short[name] for name in absent] == [None] * 4
    assert "context_health: 1 content positions, 8 needed" in short["null_reason"]


def health(z_scores: list[float], threshold: float) -> float:
    sinks = [z for z in z_scores if z > threshold]
    if not sinks:
        return 10.0
    return max(0.0, 10 - 10 * len(sinks) / len(z_scores) - min(sum(sinks) / len(sinks), 5))
