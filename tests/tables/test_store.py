from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from table_examples import example, rows, stage_examples

from specstudy.errors import UserError
from specstudy.records import STAGE_TABLES
from specstudy.tables import store as store_module
from specstudy.tables.schema import InvalidRecordError, empty_table, schema_of, to_records, to_table
from specstudy.tables.store import Store, result_key

PARTS = {"prompt": "Who?", "seed": 0, "decode": {"temperature": 0.7}}
KEY = result_key(PARTS)
STORED_STAGES = ["prefill", "decode", "speculate"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def path_of(store: Store, stage: str = "decode", key: str = KEY) -> Path:
    return Path(store.root) / stage / key[:2] / f"{key}.parquet"


def files_below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("stage", STORED_STAGES)
def test_a_result_comes_back_under_its_declared_schemas(store: Store, stage: str) -> None:
    assert store.get(stage, KEY) is None
    assert not store.has(stage, KEY)
    store.put(stage, KEY, PARTS, stage_examples(stage))
    result = store.get(stage, KEY)
    assert store.has(stage, KEY)
    assert result is not None
    assert list(result) == list(STAGE_TABLES[stage])
    for table, records in stage_examples(stage).items():
        assert to_records(table, result[table]) == records
        assert result[table].schema.equals(schema_of(table), check_metadata=True)


def test_a_table_without_rows_comes_back_empty_and_typed(store: Store) -> None:
    store.put("decode", KEY, PARTS, {table: [] for table in STAGE_TABLES["decode"]})
    result = store.get("decode", KEY)
    assert result == {table: empty_table(table) for table in STAGE_TABLES["decode"]}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.data())
def test_any_result_comes_back_as_it_was(store: Store, data: st.DataObject) -> None:
    stage = data.draw(st.sampled_from(STORED_STAGES))
    records = {table: data.draw(rows(table, max_size=3)) for table in STAGE_TABLES[stage]}
    store.put(stage, KEY, PARTS, records)
    result = store.get(stage, KEY)
    assert result is not None
    assert {table: to_records(table, result[table]) for table in result} == records


def test_a_result_is_one_file_named_by_its_key_alone(store: Store) -> None:
    parts = PARTS | {"prompt_id": "../../escaped"}
    store.put("decode", result_key(parts), parts, stage_examples("decode", "../../escaped"))
    key = result_key(parts)
    assert files_below(Path(store.root).parent) == [f"store/decode/{key[:2]}/{key}.parquet"]


def test_a_later_result_replaces_the_earlier(store: Store) -> None:
    store.put("decode", KEY, PARTS, stage_examples("decode"))
    later = stage_examples("decode") | {"decode_runs": [example("decode_runs", decode_s=2.5)]}
    store.put("decode", KEY, PARTS, later)
    result = store.get("decode", KEY)
    assert result is not None
    assert result["decode_runs"]["decode_s"].to_pylist() == [2.5]
    assert len(files_below(Path(store.root))) == 1


def test_a_refused_row_stores_nothing(store: Store) -> None:
    records = stage_examples("decode") | {"decode_runs": [example("decode_runs", decode_s=float("nan"))]}
    with pytest.raises(InvalidRecordError, match="decode_runs, column decode_s, row 0: nan"):
        store.put("decode", KEY, PARTS, records)
    assert files_below(Path(store.root)) == []


def test_a_key_of_other_parts_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="is not that of the given parts"):
        store.put("decode", KEY, PARTS | {"seed": 1}, stage_examples("decode"))


@pytest.mark.parametrize("tables", [["decode_tokens"], [*STAGE_TABLES["decode"], "spec_runs"]])
def test_tables_other_than_the_stage_has_are_refused(store: Store, tables: list[str]) -> None:
    with pytest.raises(ValueError, match="stage decode has the tables"):
        store.put("decode", KEY, PARTS, {table: [] for table in tables})


@pytest.mark.parametrize("kept", [0, 1, 4, 100, 0.5, -100, -8, -1])
def test_a_truncated_file_is_moved_aside_and_computed_again(
    store: Store, caplog: pytest.LogCaptureFixture, kept: float
) -> None:
    store.put("decode", KEY, PARTS, stage_examples("decode"))
    path = path_of(store)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept) if isinstance(kept, float) else kept])
    assert store.get("decode", KEY) is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"{path} is damaged or foreign" in caplog.text
    assert not path.exists()
    store.put("decode", KEY, PARTS, stage_examples("decode"))
    assert store.has("decode", KEY)
    assert files_below(Path(store.root)) == [
        f"decode/{KEY[:2]}/{KEY}.parquet",
        f"decode/{KEY[:2]}/{KEY}.parquet.rejected",
    ]


def test_no_flipped_bit_changes_what_is_read(store: Store) -> None:
    store.put("decode", KEY, PARTS, stage_examples("decode"))
    whole = store.get("decode", KEY)
    content = path_of(store).read_bytes()
    rejected = 0
    for place in range(0, len(content), 61):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        path_of(store).write_bytes(flipped)
        result = store.get("decode", KEY)
        assert result is None or result == whole, place
        rejected += result is None
    assert rejected


def foreign_parquet(path: Path) -> None:
    pq.write_table(pa.table({"number": [1]}), path)


def foreign_text(path: Path) -> None:
    path.write_text("not Parquet at all\n" * 100)


def result_of_another_key(path: Path) -> None:
    other = Store(path.parents[2] / "other")
    parts = PARTS | {"seed": 1}
    other.put("decode", result_key(parts), parts, stage_examples("decode"))
    os.replace(path_of(other, key=result_key(parts)), path)


def result_of_another_stage(path: Path) -> None:
    other = Store(path.parents[2] / "other")
    other.put("prefill", KEY, PARTS, stage_examples("prefill"))
    os.replace(path_of(other, "prefill"), path)


def result_with_other_columns(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["decode_runs"]), path)


def a_number_that_is_none(path: Path) -> None:
    result = pq.read_table(path)
    place = result.schema.get_field_index("decode_runs")
    runs = result.column(place)[0].as_py()
    runs[0]["decode_s"] = float("nan")
    field = result.schema.field(place)
    pq.write_table(result.set_column(place, field, pa.array([runs], field.type)), path)


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "something").touch()


def result_of_two_rows(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table, table]), path)


@pytest.mark.parametrize(
    "replace",
    [
        foreign_parquet,
        foreign_text,
        result_of_another_key,
        result_of_another_stage,
        result_with_other_columns,
        result_of_two_rows,
        a_number_that_is_none,
        a_directory,
    ],
)
def test_a_foreign_file_is_not_trusted(store: Store, caplog: pytest.LogCaptureFixture, replace: object) -> None:
    assert callable(replace)
    store.put("decode", KEY, PARTS, stage_examples("decode"))
    replace(path_of(store))
    assert store.get("decode", KEY) is None
    assert len(caplog.records) == 1
    assert not path_of(store).exists()


def test_a_result_of_another_schema_version_is_absent(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store_module, "SCHEMA_VERSION", 0)
    store.put("decode", KEY, PARTS, stage_examples("decode"))
    monkeypatch.undo()
    assert store.get("decode", KEY) is None
    assert caplog.records == []
    store.put("decode", KEY, PARTS, stage_examples("decode"))
    assert store.has("decode", KEY)
    assert len(files_below(Path(store.root))) == 1


def test_a_file_that_cannot_be_read_is_one_line(store: Store) -> None:
    path_of(store).parent.mkdir(parents=True)
    path_of(store).symlink_to(path_of(store))
    with pytest.raises(UserError, match=r"cannot read .*; remove it"):
        store.get("decode", KEY)


def test_a_link_to_nowhere_is_no_result_and_gives_way_to_one(store: Store) -> None:
    path_of(store).parent.mkdir(parents=True)
    path_of(store).symlink_to("nowhere")
    assert store.get("decode", KEY) is None
    store.put("decode", KEY, PARTS, stage_examples("decode"))
    assert store.has("decode", KEY)


WRITER = """
import os, pathlib, signal, sys
sys.path.insert(0, {tests!r})
from table_examples import stage_examples
from specstudy.tables.store import Store, result_key
parts = {parts!r}
store = Store(pathlib.Path(sys.argv[1]))
{before}
for _ in range({times}):
    store.put("decode", result_key(parts), parts, stage_examples("decode"))
"""


def writer(store: Store, before: str = "", times: int = 1) -> subprocess.Popen[bytes]:
    code = WRITER.format(tests=str(Path(__file__).parent), parts=PARTS, before=before, times=times)
    return subprocess.Popen([sys.executable, "-c", code, str(store.root)])


def test_a_writer_killed_before_the_rename_leaves_no_result(store: Store) -> None:
    process = writer(store, before="os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)")
    assert process.wait() == -signal.SIGKILL
    assert len(files_below(Path(store.root))) == 1
    assert store.get("decode", KEY) is None
    again = Store(store.root)
    assert files_below(Path(store.root)) == []
    again.put("decode", KEY, PARTS, stage_examples("decode"))
    assert again.has("decode", KEY)


def test_two_processes_may_write_the_same_key_at_once(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    whole = {table: to_table(table, records) for table, records in stage_examples("decode").items()}
    processes = [writer(store, times=40) for _ in range(2)]
    seen = 0
    while any(process.poll() is None for process in processes):
        result = store.get("decode", KEY)
        assert result in (None, whole)
        seen += result is not None
    assert [process.wait() for process in processes] == [0, 0]
    assert seen
    assert store.get("decode", KEY) == whole
    assert files_below(Path(store.root)) == [f"decode/{KEY[:2]}/{KEY}.parquet"]
    assert caplog.records == []


def test_the_parts_can_be_read_from_the_file(store: Store) -> None:
    store.put("decode", KEY, PARTS, stage_examples("decode"))
    metadata = pq.read_schema(path_of(store)).metadata
    assert json.loads(metadata[b"specstudy.parts"]) == PARTS


def test_a_key_depends_on_every_part_and_not_on_their_order() -> None:
    assert result_key(dict(reversed(PARTS.items()))) == KEY
    changed = [
        PARTS | {"seed": 1},
        PARTS | {"prompt": "Who"},
        PARTS | {"decode": {"temperature": 0.8}},
        PARTS | {"a": 0},
    ]
    assert len({KEY, *map(result_key, changed)}) == 5


@pytest.mark.parametrize("value", [float("nan"), float("inf"), Path("here"), b"bytes"])
def test_a_part_that_json_cannot_say_is_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        result_key({"part": value})


@given(st.text(st.characters()))
def test_any_text_can_be_a_part(text: str) -> None:
    assert len(result_key({"prompt": text})) == 64
