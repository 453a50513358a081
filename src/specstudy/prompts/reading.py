"""Prompt files: JSONL, CSV, Parquet and plain text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specstudy.errors import UserError
from specstudy.prompts.prompt import Prompt

DEFAULT_CATEGORY = "own"


@dataclass(frozen=True)
class Columns:
    """Where a prompt file keeps what: `text` is needed, the others may be missing."""

    text: str = "text"
    prompt_id: str = "prompt_id"
    category: str = "category"
    system: str = "system"


DEFAULT_COLUMNS = Columns()


@dataclass(frozen=True)
class _Row:
    """The values of one row and where they stand: `place` for people, `number` for an id made of it."""

    place: str
    number: int
    values: Mapping[str, Any]


def read_prompts(path: Path, columns: Columns = DEFAULT_COLUMNS) -> list[Prompt]:
    """Prompts of a JSONL, CSV, Parquet or TXT file (one prompt a line), in file order.

    Prompts without an id get one from the file's name and the line. Raises UserError in one line.
    """
    readers = {".jsonl": _jsonl_rows, ".csv": _csv_rows, ".parquet": _parquet_rows, ".txt": _txt_rows}
    kinds = ", ".join(readers)
    try:
        if path.is_dir():
            raise UserError(f"prompts.path={path} is a directory; name a {kinds} file")
        if not path.exists():
            raise UserError(f"prompts.path={path}: no such file")
        if path.suffix.lower() not in readers:
            raise UserError(f"prompts.path={path}: unknown kind of file; name a {kinds} file")
        prompts = [_prompt(row, path, columns) for row in readers[path.suffix.lower()](path, columns)]
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    if not prompts:
        raise UserError(f"{path} holds no prompts")
    _refuse_duplicates([p.prompt_id for p in prompts], path)
    return prompts


def select(prompts: Sequence[Prompt], categories: Sequence[str] | None, per_category: int | None) -> list[Prompt]:
    """The prompts of these categories, at most the first `per_category` of each."""
    known = list(dict.fromkeys(p.category for p in prompts))
    for category in categories or ():
        if category not in known:
            raise UserError(f"prompts.categories: no prompt of category {category!r}; there are {', '.join(known)}")
    taken: dict[str, int] = {}
    chosen = []
    for prompt in prompts:
        taken[prompt.category] = taken.get(prompt.category, 0) + 1
        if (categories is None or prompt.category in categories) and (
            per_category is None or taken[prompt.category] <= per_category
        ):
            chosen.append(prompt)
    return chosen


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines that are not blank. Only line feeds and carriage returns end a line, unlike in str.splitlines."""
    text = path.read_bytes().decode("utf-8-sig")
    for number, line in enumerate(io.StringIO(text, newline=None), start=1):
        if line.strip():
            yield number, line.strip()


def _jsonl_rows(path: Path, columns: Columns) -> Iterator[_Row]:
    for number, line in _lines(path):
        place = f"{path} line {number}"
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{place} is not JSON: {error}") from error
        if not isinstance(values, dict):
            raise UserError(f"{place} is not a JSON object with a text")
        yield _Row(place, number, values)


def _csv_rows(path: Path, columns: Columns) -> Iterator[_Row]:
    text = path.read_bytes().decode("utf-8-sig")
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for values in reader:
            place = f"{path} line {reader.line_num}"
            if None in values:
                raise UserError(f"{place} has more fields than the header; put quotes around a text that holds commas")
            yield _Row(place, reader.line_num, {name: value for name, value in values.items() if value})
    except csv.Error as error:
        raise UserError(f"{path} line {reader.line_num} is not CSV: {error}") from error


def _parquet_rows(path: Path, columns: Columns) -> Iterator[_Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.ParquetFile(path).read().to_pylist()
    except pa.ArrowException as error:
        raise UserError(f"{path} is not a Parquet file: {error}") from error
    for number, values in enumerate(rows, start=1):
        yield _Row(f"{path} row {number}", number, values)


def _txt_rows(path: Path, columns: Columns) -> Iterator[_Row]:
    for number, line in _lines(path):
        yield _Row(f"{path} line {number}", number, {columns.text: line})


def _prompt(row: _Row, path: Path, columns: Columns) -> Prompt:
    prompt_id = row.values.get(columns.prompt_id)
    if isinstance(prompt_id, int) and not isinstance(prompt_id, bool):
        prompt_id = str(prompt_id)
    text = _written(row.values.get(columns.text), columns.text, row.place)
    if text is None:
        there = ", ".join(map(str, row.values)) or "nothing"
        raise UserError(f"{row.place} has no {columns.text} (it has {there}); prompts.text_column names the column")
    return Prompt(
        prompt_id=_written(prompt_id, columns.prompt_id, row.place) or f"{path.stem}-{row.number:04d}",
        category=_written(row.values.get(columns.category), columns.category, row.place) or DEFAULT_CATEGORY,
        text=text,
        system=_written(row.values.get(columns.system), columns.system, row.place, may_be_blank=True),
    )


def _written(value: object, name: str, place: str, may_be_blank: bool = False) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not (value.strip() or may_be_blank):
        raise UserError(f"{place}: {name} must be a text that is not empty; got {str(value)[:40]!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{place}: {name} holds half of a surrogate pair at character {error.start}") from error
    return value


def _refuse_duplicates(ids: Sequence[str], path: Path) -> None:
    seen: set[str] = set()
    for prompt_id in ids:
        if prompt_id in seen:
            raise UserError(f"{path}: prompt_id {prompt_id!r} occurs twice; ids must be unique")
        seen.add(prompt_id)
