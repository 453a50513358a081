from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from table_examples import example, examples

import specstudy
from specstudy.errors import UserError
from specstudy.tables import manifest
from specstudy.tables.run_directory import publish_table, run_directory
from specstudy.tables.schema import to_table


@pytest.fixture
def output_dir(tmp_path: Path) -> Path:
    with run_directory(tmp_path, models="m", prompts="p", config={"seed": 3}) as path:
        manifest.start(path)
        publish_table(path, "spec_runs", to_table("spec_runs", examples("spec_runs", 2)))
        tokens = [example("prefill_tokens", position=0, is_sink=True), example("prefill_tokens", position=1)]
        publish_table(path, "prefill_tokens", to_table("prefill_tokens", tokens))
        heads = [example("prefill_heads", head=0, max_content_position=2), example("prefill_heads", head=1)]
        publish_table(path, "prefill_heads", to_table("prefill_heads", heads))
    return tmp_path


def test_a_run_opens_by_its_latest(output_dir: Path) -> None:
    run = specstudy.open_run(output_dir / "latest")
    assert run.path.name.startswith("m-p-")
    assert run.config == {"seed": 3}
    assert run.manifest["time"]["end"] is None
    assert run.tables == ["prefill_tokens", "prefill_heads", "spec_runs"]
    assert run.table("spec_runs")["prompt_id"].tolist() == ["prompt-000", "prompt-001"]
    pd.testing.assert_frame_equal(run.spec_runs, run.table("spec_runs"))
    assert "spec_runs" in dir(run)
    assert "decode_runs" not in dir(run)


def test_null_stays_null_in_whole_numbers_and_truth_values(output_dir: Path) -> None:
    run = specstudy.open_run(output_dir / "latest")
    assert run.prefill_tokens["is_sink"].tolist() == [True, pd.NA]
    assert run.prefill_tokens["is_sink"].dtype == "boolean"
    assert run.prefill_heads["max_content_position"].tolist() == [2, pd.NA]
    assert run.prefill_heads["max_content_position"].dtype == "Int64"
    assert run.prefill_heads["head"].dtype == "int64"
    assert run.prefill_tokens["z_score"].isna().all()
    assert run.prefill_tokens["z_score"].dtype == "float64"


def test_what_is_not_there_is_said(output_dir: Path) -> None:
    with pytest.raises(UserError, match=r"no run at .*nosuch"):
        specstudy.open_run(output_dir / "nosuch")
    run = specstudy.open_run(output_dir / "latest")
    with pytest.raises(UserError, match="no table decode_runs; `make decode`"):
        run.table("decode_runs")
    with pytest.raises(UserError, match="no table is called 'specs'"):
        run.table("specs")
    with pytest.raises(AttributeError, match="a run has no 'specs'; its tables are"):
        _ = run.specs


def test_runs_open_without_torch_and_the_package_imports_nothing_heavy(output_dir: Path) -> None:
    code = """
import sys
sys.modules["torch"] = sys.modules["transformers"] = None
import specstudy
assert not {"pandas", "pyarrow"} & set(sys.modules), "importing the package should cost nothing"
print(len(specstudy.open_run(sys.argv[1]).table("spec_runs")))
"""
    command = [sys.executable, "-c", code, str(output_dir / "latest")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "2\n"
