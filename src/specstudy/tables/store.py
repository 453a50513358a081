"""Per-prompt results, shared by all runs: one file for each stage and unit of work, under a key of all that matters.

A unit of work is a prompt (prefill, decode), or a prompt, condition and repetition (speculate). Beside them lie the
outcomes of trials of threads, by which a machine decides once how it computes.
Its result is one Parquet file of one row with a column per table, each a list of that table's rows; so the tables of a
unit appear together or not at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from specstudy.errors import UserError
from specstudy.records import STAGE_TABLES
from specstudy.tables.places import open_place
from specstudy.tables.schema import SCHEMA_VERSION, InvalidRecordError, schema_of, to_table, validate

_VERSION, _PARTS = b"specstudy.schema_version", b"specstudy.parts"


def canonical_json(value: object) -> str:
    """JSON that is the same for equal values: sorted keys, no spaces, ASCII only.

    Raises ValueError for NaN or infinity and TypeError for what JSON does not know.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def result_key(parts: Mapping[str, object]) -> str:
    """The key of a result: SHA-256 (64 hex digits) over everything that can change its numbers."""
    return hashlib.sha256(canonical_json(dict(parts)).encode()).hexdigest()


class Store:
    """The results below a directory or URI, `<root>/<stage>/<first 2 hex digits>/<key>.parquet`.

    Any number of processes, on any number of machines, may use it at once.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = root
        self._place = open_place(root)

    def get(self, stage: str, key: str) -> dict[str, pa.Table] | None:
        """The tables of a result, or None if it has to be computed.

        A file that is damaged or not what its place says is moved aside with a warning and counts as absent; so does,
        without a warning, one of another schema version. Raises UserError if the file exists and cannot be read.
        """
        name = _name(stage, key)
        content = self._place.read(name)
        if content is None:
            return None
        try:
            return _decode(content, stage, key)
        except (_NotThisResult, InvalidRecordError, pa.ArrowException, OSError) as fault:
            self._place.reject(name, fault)
            return None

    def stored(self, stage: str, key: str) -> dict[str, pa.Table]:
        """The same for a result that was there a moment ago. Raises UserError if it is not."""
        result = self.get(stage, key)
        if result is None:
            name = self._place.shown(_name(stage, key))
            raise UserError(f"{name} vanished while its tables were written; the same command goes on")
        return result

    def exists(self, stage: str, key: str) -> bool:
        """Whether there is a file for the result, good or not, of this schema version or another."""
        return self._place.exists(_name(stage, key))

    def has(self, stage: str, key: str) -> bool:
        """Whether `get` would return the result."""
        return self.get(stage, key) is not None

    def put(self, stage: str, key: str, parts: Mapping[str, object], records: Mapping[str, Sequence[object]]) -> None:
        """Stores a result: for each table of the stage, its rows (none is fine).

        Raises ValueError if `key` is not the key of `parts` or the tables are not those of the stage,
        InvalidRecordError for a row that its schema refuses, UserError if it cannot be written.
        """
        if key != result_key(parts):
            raise ValueError(f"the key {key!r} is not that of the given parts")
        if set(records) != set(STAGE_TABLES[stage]):
            raise ValueError(f"stage {stage} has the tables {STAGE_TABLES[stage]}, not {tuple(records)}")
        tables = {name: to_table(name, records[name]) for name in STAGE_TABLES[stage]}
        self._place.write(_name(stage, key), _encode(stage, parts, tables))

    def kept_trial(self, parts: Mapping[str, object]) -> dict[str, Any] | None:
        """The outcome of a trial of threads on the machine and pair of `parts`, or None if none was kept.

        A damaged file is moved aside with a warning and counts as absent.
        """
        name = _trial_name(parts)
        content = self._place.read(name)
        if content is None:
            return None
        try:
            outcome = json.loads(content)["outcome"]
            if not isinstance(outcome["threads"], int):
                raise ValueError("it does not say how many threads")
            return dict(outcome)
        except (ValueError, KeyError, TypeError) as fault:
            self._place.reject(name, fault)
            return None

    def keep_trial(self, parts: Mapping[str, object], outcome: Mapping[str, object]) -> None:
        """Keeps the outcome of a trial. Raises UserError if it cannot be written."""
        content = json.dumps({"of": dict(parts), "outcome": dict(outcome)}, indent=2, allow_nan=False)
        self._place.write(_trial_name(parts), f"{content}\n".encode())


def _name(stage: str, key: str) -> str:
    return f"{stage}/{key[:2]}/{key}.parquet"


def _trial_name(parts: Mapping[str, object]) -> str:
    return f"threads/{result_key(parts)[:16]}.json"


class _NotThisResult(Exception):
    """The file is readable Parquet, but not the result that its place says."""


@cache
def _result_schema(stage: str) -> pa.Schema:
    """One column per table: a list of structs with the table's columns."""
    fields = []
    for name in STAGE_TABLES[stage]:
        row = pa.struct([field.remove_metadata() for field in schema_of(name)])
        fields.append(pa.field(name, pa.list_(pa.field("element", row, nullable=False)), nullable=False))
    return pa.schema(fields)


def _encode(stage: str, parts: Mapping[str, object], tables: Mapping[str, pa.Table]) -> bytes:
    schema = _result_schema(stage)
    columns = []
    for field in schema:
        table = tables[field.name]
        arrays = [column.combine_chunks() for column in table.columns]
        rows = pa.StructArray.from_arrays(arrays, fields=list(field.type.value_type))
        columns.append(pa.ListArray.from_arrays(pa.array([0, table.num_rows], pa.int32()), rows, type=field.type))
    metadata = {_VERSION: str(SCHEMA_VERSION), _PARTS: canonical_json(dict(parts))}
    result = pa.Table.from_arrays(columns, schema=schema.with_metadata(metadata))
    sink = pa.BufferOutputStream()
    pq.write_table(result, sink, compression="zstd", write_page_checksum=True)
    return bytes(sink.getvalue())


def _decode(content: bytes, stage: str, key: str) -> dict[str, pa.Table] | None:
    """The tables of a result; None for another schema version. Raises where the file is damaged or a foreign one."""
    result = pq.read_table(pa.BufferReader(content), page_checksum_verification=True)
    metadata = result.schema.metadata or {}
    if not {_VERSION, _PARTS} <= metadata.keys():
        raise _NotThisResult("it was not written by this store")
    if hashlib.sha256(metadata[_PARTS]).hexdigest() != key:
        raise _NotThisResult("it holds the result of something else")
    if metadata[_VERSION] != str(SCHEMA_VERSION).encode():
        return None
    if result.num_rows != 1 or not result.schema.equals(_result_schema(stage)):
        raise _NotThisResult("its columns are not the declared ones")
    tables = {}
    for name in STAGE_TABLES[stage]:
        rows = result.column(name)[0].values
        tables[name] = pa.Table.from_arrays(rows.flatten(), schema=schema_of(name))
        validate(name, tables[name])
    return tables
