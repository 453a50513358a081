"""The rows of prompt files of every kind: JSONL, CSV, Parquet and plain text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specstudy.errors import UserError

MAX_FILE_BYTES = 128 * 2**20
"""A prompt file larger than this is refused: its rendered prompts would not fit into memory."""
_BATCH_ROWS = 256
_BINARY_KINDS = {
    b"\x1f\x8b": "compressed with gzip; unpack it first",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it first",
    b"PK\x03\x04": "a ZIP archive or a spreadsheet; unpack it, or save it as CSV",
    b"\xff\xfe": "UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "UTF-16 text; save it as UTF-8",
}


@dataclass(frozen=True)
class Row:
    """The values of one row and where they stand: `place` for people, `number` for an id made of it."""

    place: str
    number: int
    values: Mapping[str, Any]


def read_rows(path: Path, text_column: str) -> Iterator[Row]:
    """The rows of a file in order; lines of plain text are put under `text_column`.

    Raises UserError in one line for a file that is not there, not of its kind, or too large.
    """
    readers = {".jsonl": _jsonl_rows, ".csv": _csv_rows, ".parquet": _parquet_rows, ".txt": _txt_rows}
    kinds = ", ".join(readers)
    try:
        if path.is_dir():
            raise UserError(f"prompts.path={path} is a directory; name a {kinds} file")
        if not path.exists():
            raise UserError(f"prompts.path={path}: no such file")
        if path.suffix.lower() not in readers or not path.is_file():
            raise UserError(f"prompts.path={path}: unknown kind of file; name a {kinds} file")
        if (size := path.stat().st_size) > MAX_FILE_BYTES:
            limit = MAX_FILE_BYTES // 2**20
            raise UserError(
                f"{path} is too large ({size / 2**20:.0f} MiB, at most {limit}); split it into several runs"
            )
        yield from readers[path.suffix.lower()](path, text_column)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {one_line(error.strerror or str(error))}") from error


def one_line(text: str, longest: int = 200) -> str:
    """A text as part of a message: white space and what cannot be printed are single spaces, the end is cut off."""
    plain = "".join(c if c.isprintable() else " " for c in text[: 4 * longest])
    words = " ".join(plain.split())
    return words if len(words) <= longest else words[:longest] + "..."


def _decoded(path: Path) -> str:
    content = path.read_bytes()
    for start, kind in _BINARY_KINDS.items():
        if content.startswith(start):
            raise UserError(f"{path} is {kind}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path} line {line} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines that are not blank. Only line feeds and carriage returns end a line, unlike in str.splitlines."""
    for number, line in enumerate(io.StringIO(_decoded(path), newline=None), start=1):
        if line.strip():
            yield number, line.strip()


def _jsonl_rows(path: Path, text_column: str) -> Iterator[Row]:
    for number, line in _lines(path):
        place = f"{path} line {number}"
        try:
            values = json.loads(line, object_pairs_hook=_without_doubles)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{place} is not JSON: {one_line(str(error))}") from error
        if not isinstance(values, dict):
            raise UserError(f"{place} is not a JSON object with a text")
        yield Row(place, number, values)


def _without_doubles(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name stands twice in an object")
    return values


def _csv_rows(path: Path, text_column: str) -> Iterator[Row]:
    csv.field_size_limit(MAX_FILE_BYTES)
    reader = csv.DictReader(io.StringIO(_decoded(path), newline=""), strict=True)
    try:
        names = reader.fieldnames or []
        if len(set(names)) < len(names):
            raise UserError(f"{path} line 1 names a column twice; the first line names the columns")
        for values in reader:
            place = f"{path} line {reader.line_num}"
            if None in values:
                raise UserError(f"{place} has more fields than the header; put quotes around a text that holds commas")
            yield Row(place, reader.line_num, {name: value for name, value in values.items() if value})
    except csv.Error as error:
        raise UserError(f"{path} line {reader.line_num} is not CSV: {one_line(str(error))}") from error


def _parquet_rows(path: Path, text_column: str) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number, n_bytes = 0, 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH_ROWS):
                # A small file may stand for endless repetitions of one text.
                if (n_bytes := n_bytes + batch.nbytes) > MAX_FILE_BYTES:
                    raise UserError(f"{path} is too large (over {MAX_FILE_BYTES // 2**20} MiB); split it")
                for values in batch.to_pylist():
                    number += 1
                    yield Row(f"{path} row {number}", number, values)
    except UnicodeDecodeError as error:
        raise UserError(f"{path}, after row {number}, holds a text that is not UTF-8") from error
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise UserError(f"{path} is not a Parquet file that can be read: {one_line(str(error))}") from error


def _txt_rows(path: Path, text_column: str) -> Iterator[Row]:
    for number, line in _lines(path):
        yield Row(f"{path} line {number}", number, {text_column: line})
