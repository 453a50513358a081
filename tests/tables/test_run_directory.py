from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from table_examples import example, examples, stage_examples

from specstudy.errors import UserError
from specstudy.records import STAGE_TABLES
from specstudy.tables import run_directory as run_directory_module
from specstudy.tables.run_directory import (
    consolidate,
    locked,
    point_latest,
    publish_table,
    read_config,
    read_table,
    resolve_run,
    run_directory,
    run_path,
    table_path,
)
from specstudy.tables.schema import InvalidRecordError, empty_table, schema_of, sort_by_key, to_records, to_table

CONFIG: dict[str, object] = {"spec": {"gamma": [4], "stop": "none"}, "seed": 0, "word": "naïve\n- on: 1e5"}


def result_of(stage: str, prompt_id: str) -> dict[str, pa.Table]:
    return {table: to_table(table, records) for table, records in stage_examples(stage, prompt_id).items()}


def test_the_path_follows_from_the_configuration_alone(tmp_path: Path) -> None:
    path = run_path(tmp_path, "smollm2", "study50", CONFIG)
    assert path == run_path(tmp_path, "smollm2", "study50", dict(reversed(CONFIG.items())))
    assert path != run_path(tmp_path, "smollm2", "study50", CONFIG | {"seed": 1})
    assert path.parent == tmp_path
    prefix, digits = path.name.rsplit("-", 1)
    assert prefix == "smollm2-study50"
    assert len(digits) == 8
    assert int(digits, 16) >= 0


@pytest.mark.parametrize(
    "name", ["Qwen/Qwen2.5-3B", "../../x", "a\\b:c*?", "", "...", "ü😀", "CON", "x" * 300, "a\nb", ".hidden"]
)
def test_any_name_makes_one_folder(tmp_path: Path, name: str) -> None:
    path = run_path(tmp_path, name, name, CONFIG)
    assert path.parent == tmp_path
    assert path.name.replace("-", "").replace("_", "").replace(".", "").isalnum()
    assert path.name.isascii()
    assert not path.name.startswith((".", "-"))
    path.mkdir()


def test_a_run_directory_holds_its_configuration_and_is_the_latest(tmp_path: Path) -> None:
    with run_directory(tmp_path / "outputs", models="m", prompts="p", config=CONFIG) as path:
        assert path == run_path(tmp_path / "outputs", "m", "p", CONFIG)
    assert read_config(path) == CONFIG
    assert resolve_run(tmp_path / "outputs" / "latest") == path
    with run_directory(tmp_path / "outputs", models="m", prompts="p", config=CONFIG) as again:
        assert again == path


def test_latest_is_replaced(tmp_path: Path) -> None:
    for seed in (0, 1, 0):
        with run_directory(tmp_path, models="m", prompts="p", config={"seed": seed}) as path:
            assert (tmp_path / "latest").is_symlink()
            assert os.readlink(tmp_path / "latest") == path.name
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(
        ["latest", *(run_path(tmp_path, "m", "p", {"seed": seed}).name for seed in (0, 1))]
    )


def test_where_links_are_refused_latest_is_a_text_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("symbolic links are not permitted")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    with run_directory(tmp_path, models="m", prompts="p", config=CONFIG) as path:
        pass
    assert not (tmp_path / "latest").is_symlink()
    assert resolve_run(tmp_path / "latest") == path
    monkeypatch.undo()
    point_latest(path)
    assert (tmp_path / "latest").is_symlink()
    assert resolve_run(tmp_path / "latest") == path


def test_a_folder_called_latest_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "latest" / "mine").mkdir(parents=True)
    with pytest.raises(UserError, match=r"cannot write .*latest"):
        point_latest(tmp_path / "run")


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "outputs").write_text("a file")
    with pytest.raises(UserError, match=r"cannot write .*Not a directory"), locked(tmp_path / "outputs" / "run"):
        pass


@pytest.mark.parametrize("content", ["nothing there", "", b"\xff\xfe"])
def test_no_run_is_one_line(tmp_path: Path, content: str | bytes) -> None:
    with pytest.raises(UserError, match=r"no run at .*nosuch"):
        resolve_run(tmp_path / "nosuch")
    with pytest.raises(UserError, match="no run at"):
        resolve_run(tmp_path)
    (tmp_path / "latest").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=r"no run at|is a file, not a run directory"):
        resolve_run(tmp_path / "latest")


@pytest.mark.parametrize("content", ["a: [", "- 1", ""])
def test_a_damaged_configuration_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(UserError, match=r"config\.yaml") as raised:
        read_config(tmp_path)
    assert "\n" not in str(raised.value)


HOLDER = """
import pathlib, sys, time
from specstudy.tables.run_directory import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
    time.sleep(0.5)
    pathlib.Path(sys.argv[1], "finished").touch()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_command_says_that_it_waits_and_goes_on(
    tmp_path: Path, holder: subprocess.Popen[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert holder.stdin is not None

    def let_go_once_the_wait_is_announced(record: logging.LogRecord) -> bool:
        assert not (tmp_path / "finished").exists()
        assert holder.stdin is not None
        holder.stdin.write("\n")
        holder.stdin.flush()
        return True

    run_directory_module.log.addFilter(let_go_once_the_wait_is_announced)
    try:
        with locked(tmp_path):
            assert (tmp_path / "finished").exists()
    finally:
        run_directory_module.log.removeFilter(let_go_once_the_wait_is_announced)
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path} is in use by another command; waiting for it to end"
    ]


def test_a_killed_command_does_not_keep_the_next_one_out(
    tmp_path: Path, holder: subprocess.Popen[str], caplog: pytest.LogCaptureFixture
) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with locked(tmp_path):
        assert not (tmp_path / "finished").exists()
    assert caplog.records == []


def test_different_runs_do_not_wait_for_each_other(
    tmp_path: Path, holder: subprocess.Popen[str], caplog: pytest.LogCaptureFixture
) -> None:
    started = time.monotonic()
    with locked(tmp_path / "other"):
        assert holder.poll() is None
    assert time.monotonic() - started < 5
    assert caplog.records == []


def test_a_published_table_is_read_back_and_opens_in_pandas(tmp_path: Path) -> None:
    rows = to_table("spec_runs", examples("spec_runs", 3))
    publish_table(tmp_path, "spec_runs", rows)
    again = read_table(tmp_path, "spec_runs")
    assert again.equals(rows)
    assert again.schema.equals(schema_of("spec_runs"), check_metadata=True)
    assert list(again.to_pandas().columns) == schema_of("spec_runs").names
    metadata = pq.read_metadata(table_path(tmp_path, "spec_runs"))
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def doubled() -> pa.Table:
    return to_table("spec_runs", [example("spec_runs"), example("spec_runs")])


def holding_nan() -> pa.Table:
    rows = to_table("spec_runs", examples("spec_runs", 1))
    place = rows.schema.get_field_index("speedup")
    return rows.set_column(place, rows.schema.field(place), [[float("nan")]])


@pytest.mark.parametrize("make", [doubled, holding_nan, lambda: empty_table("spec_rounds")])
def test_a_refused_table_leaves_the_earlier_one(tmp_path: Path, make: Any) -> None:
    rows = to_table("spec_runs", examples("spec_runs", 3))
    publish_table(tmp_path, "spec_runs", rows)
    with pytest.raises(InvalidRecordError):
        publish_table(tmp_path, "spec_runs", make())
    assert read_table(tmp_path, "spec_runs").equals(rows)


def test_a_writer_killed_before_the_rename_leaves_the_earlier_table(tmp_path: Path) -> None:
    rows = to_table("claims", [example("claims")])
    publish_table(tmp_path, "claims", rows)
    code = """
import os, pathlib, signal, sys
from specstudy.tables.run_directory import publish_table
from specstudy.tables.schema import empty_table
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
publish_table(pathlib.Path(sys.argv[1]), "claims", empty_table("claims"))
"""
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert read_table(tmp_path, "claims").equals(rows)


def test_a_disk_that_fills_while_a_table_is_written_leaves_the_earlier_table(tmp_path: Path) -> None:
    rows = to_table("claims", [example("claims")])
    publish_table(tmp_path, "claims", rows)
    code = """
import pathlib, resource, sys
sys.path.insert(0, sys.argv[2])
from table_examples import example
from specstudy.errors import UserError
from specstudy.tables.run_directory import publish_table
from specstudy.tables.schema import to_table
rows = to_table("claims", [example("claims", claim_id=str(number)) for number in range(5000)])
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    publish_table(pathlib.Path(sys.argv[1]), "claims", rows)
except UserError as fault:
    print(fault)
"""
    pytest.importorskip("resource")
    command = [sys.executable, "-c", code, str(tmp_path), str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"cannot write {table_path(tmp_path, 'claims')}: File too large")
    assert read_table(tmp_path, "claims").equals(rows)
    assert [path.name for path in table_path(tmp_path, "claims").parent.iterdir()] == ["claims.parquet"]


def test_tables_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'nosuch'; the tables are prefill_tokens"):
        read_table(tmp_path, "nosuch")
    with pytest.raises(UserError, match="no table retention_runs; `make study experiment=kv_retention`"):
        read_table(tmp_path, "retention_runs")
    with pytest.raises(UserError, match="no table spec_runs; `make speculate`"):
        read_table(tmp_path, "spec_runs")
    path = table_path(tmp_path, "spec_runs")
    path.parent.mkdir()
    path.write_bytes(b"PAR1 but not more")
    with pytest.raises(UserError, match=r"cannot read .*spec_runs\.parquet"):
        read_table(tmp_path, "spec_runs")
    pq.write_table(pa.table({"prompt_id": ["a"]}), path)
    with pytest.raises(UserError, match=r"spec_runs\.parquet was written by another version: .*missing"):
        read_table(tmp_path, "spec_runs")


@pytest.mark.parametrize("stage", ["prefill", "decode", "speculate"])
def test_the_order_of_results_leaves_no_trace(tmp_path: Path, stage: str) -> None:
    prompts = [f"prompt-{number}" for number in range(5)]
    consolidate(tmp_path / "one", stage, (result_of(stage, prompt) for prompt in prompts))
    consolidate(tmp_path / "two", stage, (result_of(stage, prompt) for prompt in reversed(prompts)))
    for table in STAGE_TABLES[stage]:
        one, two = table_path(tmp_path / "one", table), table_path(tmp_path / "two", table)
        assert one.read_bytes() == two.read_bytes()
        expected = [record for prompt in prompts for record in stage_examples(stage, prompt)[table]]
        assert to_records(table, read_table(tmp_path / "one", table)) == expected


def test_a_result_given_twice_is_refused_and_nothing_is_published(tmp_path: Path) -> None:
    results = [result_of("decode", prompt) for prompt in ("a", "b", "a")]
    with pytest.raises(InvalidRecordError, match="2 keys occur more than once, first: prompt_id='a'"):
        consolidate(tmp_path, "decode", results)
    assert list((tmp_path / "tables").iterdir()) == []


def test_a_fault_in_the_last_table_publishes_none(tmp_path: Path) -> None:
    results = [
        result_of("decode", "a"),
        result_of("decode", "b") | {"decode_attention": result_of("decode", "a")["decode_attention"]},
    ]
    with pytest.raises(InvalidRecordError, match="decode_attention"):
        consolidate(tmp_path, "decode", results)
    assert list((tmp_path / "tables").iterdir()) == []


def test_no_results_give_empty_tables(tmp_path: Path) -> None:
    consolidate(tmp_path, "prefill", [])
    for table in STAGE_TABLES["prefill"]:
        assert read_table(tmp_path, table).equals(empty_table(table))


@pytest.mark.parametrize("order", [("a", "b", "a"), ("a", "b", "b"), ("b", "a", "c")])
def test_groups_with_a_key_of_an_earlier_one_or_out_of_order_are_refused(
    order: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_directory_module, "_RESULTS_PER_GROUP", 1)
    with pytest.raises(InvalidRecordError, match="decode_tokens: keys occur more than once"):
        consolidate(tmp_path, "decode", [result_of("decode", prompt) for prompt in order])
    assert list((tmp_path / "tables").iterdir()) == []


def test_a_row_that_two_groups_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_directory_module, "_RESULTS_PER_GROUP", 1)
    rows = {"decode_runs": [example("decode_runs")]}
    result = {table: to_table(table, rows.get(table, [])) for table in STAGE_TABLES["decode"]}
    with pytest.raises(InvalidRecordError, match="decode_runs: keys occur more than once"):
        consolidate(tmp_path, "decode", [result, result])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(pieces=st.lists(st.integers(0, 4), max_size=8), chunk=st.integers(1, 3))
def test_joined_pieces_are_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: list[int], chunk: int
) -> None:
    monkeypatch.setattr(run_directory_module, "_RESULTS_PER_GROUP", chunk)
    records = [
        [example("decode_runs", prompt_id=f"{n}", repetition=r) for r in range(size)] for n, size in enumerate(pieces)
    ]
    results = [
        {table: to_table(table, piece if table == "decode_runs" else []) for table in STAGE_TABLES["decode"]}
        for piece in records
    ]
    consolidate(tmp_path, "decode", results)
    whole = to_table("decode_runs", [record for piece in records for record in piece])
    assert read_table(tmp_path, "decode_runs").equals(sort_by_key("decode_runs", whole))


def test_however_many_results_there_are_only_two_groups_of_them_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And every row is sorted and checked once, so that time grows as the number of results does."""
    monkeypatch.setattr(run_directory_module, "_RESULTS_PER_GROUP", 8)
    handled: list[int] = []

    def counting(name: str, rows: pa.Table) -> pa.Table:
        handled.append(rows.num_rows)
        return sort_by_key(name, rows)

    monkeypatch.setattr(run_directory_module, "sort_by_key", counting)

    def most_held(n: int) -> int:
        """The most results that are alive when one of n is given."""
        given: list[weakref.ref[pa.Table]] = []
        most = 0

        def results() -> Iterator[dict[str, pa.Table]]:
            nonlocal most
            for number in range(n):
                result = result_of("decode", f"prompt-{number:03d}")
                given.append(weakref.ref(result["decode_tokens"]))
                most = max(most, sum(reference() is not None for reference in given))
                yield result

        consolidate(tmp_path / str(n), "decode", results())
        assert read_table(tmp_path / str(n), "decode_runs").num_rows == n
        return most

    assert most_held(8) <= most_held(80) <= 8 + 8  # those being joined, and those before them
    assert sum(handled) == (8 + 80) * sum(len(rows) for rows in stage_examples("decode").values())
    assert len(handled) == (1 + 10) * len(STAGE_TABLES["decode"])
