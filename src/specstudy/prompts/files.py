"""The rows of prompt files of every kind: JSON, JSONL, CSV, TSV, Parquet and plain text."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from specstudy.errors import UserError, one_line
from specstudy.prompts.delimited import read_delimited

MAX_FILE_BYTES = 128 * 2**20
"""A prompt file larger than this is refused: its rendered prompts would not fit into memory."""
_BATCH_ROWS = 256
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_BINARY_KINDS = {
    b"\x1f\x8b": "compressed with gzip; unpack it first, or end its name in .gz",
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
    texts: dict[str, Callable[[Path, str], Iterator[Row]]] = {
        ".jsonl": _jsonl_rows,
        ".json": partial(_json_rows, text_column=text_column),
        ".csv": _csv_rows,
        ".tsv": partial(_csv_rows, separator="\t"),
        ".txt": partial(_txt_rows, text_column=text_column),
    }
    kinds = f"name a {', '.join(texts)} file (also with .gz) or a .parquet file"
    try:
        if path.is_dir():
            raise UserError(f"prompts.path={path} is a directory; {kinds}")
        if not path.exists():
            raise UserError(f"prompts.path={path}: no such file")
        ending = plain_name(path).suffix.lower()
        is_parquet = path.suffix.lower() == ".parquet"
        if not (ending in texts or is_parquet) or not path.is_file():
            raise UserError(f"prompts.path={path}: unknown kind of file; {kinds}")
        if (size := path.stat().st_size) > MAX_FILE_BYTES:
            limit = MAX_FILE_BYTES // 2**20
            raise UserError(
                f"{path} is too large ({size / 2**20:.0f} MiB, at most {limit}); split it into several runs"
            )
        _refuse_pointer(path)
        yield from _parquet_rows(path) if is_parquet else texts[ending](path, _decoded(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {one_line(error.strerror or str(error))}") from error


def plain_name(path: Path) -> Path:
    """The path without the ending that says that the file is compressed."""
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path


def _refuse_pointer(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(2 * len(_LFS_POINTER)).lstrip(b"\xef\xbb\xbf\r\n").startswith(_LFS_POINTER):
            raise UserError(f"{path} is a Git LFS pointer, not the file itself; `git lfs pull` fetches it")


def _decoded(path: Path) -> str:
    content = path.read_bytes()
    if path != plain_name(path):
        content = _unpacked(content, path)
    for start, kind in _BINARY_KINDS.items():
        if content.startswith(start):
            raise UserError(f"{path} is {kind}")
    if (at := content.find(b"\0")) >= 0:
        line = content.count(b"\n", 0, at) + 1
        raise UserError(f"{path} line {line} holds a NUL byte (byte {at}), as UTF-16 text does; save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path} line {line} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error


def _unpacked(content: bytes, path: Path) -> bytes:
    try:
        with gzip.open(io.BytesIO(content)) as file:
            unpacked = file.read(MAX_FILE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is not a gzip file, or is cut off: {one_line(str(error))}") from error
    if len(unpacked) > MAX_FILE_BYTES:
        raise UserError(f"{path} is too large unpacked (over {MAX_FILE_BYTES // 2**20} MiB); split it")
    return unpacked


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines that are not blank. Only line feeds and carriage returns end a line, unlike in str.splitlines."""
    for number, line in enumerate(io.StringIO(text, newline=None), start=1):
        if line.strip():
            yield number, line.strip()


def _jsonl_rows(path: Path, text: str) -> Iterator[Row]:
    for number, line in _lines(text):
        place = f"{path} line {number}"
        try:
            values = json.loads(line, object_pairs_hook=_without_doubles)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{place} is not JSON: {one_line(str(error))}") from error
        if not isinstance(values, dict):
            array = "; an array of objects belongs into a .json file" if isinstance(values, list) else ""
            raise UserError(f"{place} is not a JSON object with a text{array}")
        yield Row(place, number, values)


def _json_rows(path: Path, text: str, text_column: str) -> Iterator[Row]:
    """The objects of an array, or of the one array in an object that is no prompt. Several, one a line, are JSONL."""
    try:
        values = json.loads(text, object_pairs_hook=_without_doubles)
    except json.JSONDecodeError as error:
        if text.lstrip().startswith("{") and error.msg == "Extra data":
            yield from _jsonl_rows(path, text)
            return
        raise UserError(f"{path} line {error.lineno} is not JSON: {one_line(error.msg)}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {one_line(str(error))}") from error
    if isinstance(values, dict) and isinstance(values.get(text_column), str):
        values = [values]
    elif isinstance(values, dict):
        arrays = [value for value in values.values() if isinstance(value, list)]
        values = arrays[0] if len(arrays) == 1 else None
    if not isinstance(values, list):
        raise UserError(f"{path} is no array of objects, nor an object that holds one array of them")
    for number, value in enumerate(values, start=1):
        place = f"{path} item {number}"
        if not isinstance(value, dict):
            raise UserError(f"{place} is not an object with a text")
        if value.keys() & {"role", "from"}:
            raise UserError(f'{place} is a message; a conversation is written as {{"messages": [...]}} in the array')
        yield Row(place, number, value)


def _without_doubles(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name stands twice in an object")
    return values


def _csv_rows(path: Path, text: str, separator: str | None = None) -> Iterator[Row]:
    for number, values in read_delimited(text, path, separator):
        yield Row(f"{path} line {number}", number, values)


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number, n_bytes = 0, 0
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if len(set(names)) < len(names):
                raise UserError(f"{path} names a column twice")
            for batch in file.iter_batches(_BATCH_ROWS):
                # A small file may stand for endless repetitions of one text.
                if (n_bytes := n_bytes + batch.nbytes) > MAX_FILE_BYTES:
                    raise UserError(f"{path} is too large (over {MAX_FILE_BYTES // 2**20} MiB); split it")
                for values in batch.to_pylist():
                    number += 1
                    yield Row(f"{path} row {number}", number, values)
    except UnicodeDecodeError as error:
        raise UserError(f"{path}, after row {number}, holds a string that is not UTF-8") from error
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise UserError(f"{path} is not a Parquet file that can be read: {one_line(str(error))}") from error


def _txt_rows(path: Path, text: str, text_column: str) -> Iterator[Row]:
    for number, line in _lines(text):
        yield Row(f"{path} line {number}", number, {text_column: line})
