"""Whether two runs measured the same, to the bit, and where they first do not; columns of a clock are left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from specstudy.records import KEY_COLUMNS, STAGE_TABLES, TIMING_COLUMNS
from specstudy.tables.run_directory import read_table, table_path
from specstudy.tables.schema import sort_by_key

MEASURED_TABLES = tuple(name for stage, names in STAGE_TABLES.items() if stage != "analyze" for name in names)


@dataclass(frozen=True)
class Difference:
    """The first place where two tables differ: in a column, or in having the row at all (`column` is then None)."""

    table: str
    key: dict[str, object]
    column: str | None
    first: object
    second: object

    def __str__(self) -> str:
        key = ", ".join(f"{name}={value!r}" for name, value in self.key.items())
        if self.column is None:
            return f"{self.table}: the row {key} is only in the {'first' if self.first else 'second'}"
        return f"{self.table}: {self.column} of {key} is {self.first!r} in the first, {self.second!r} in the second"


def without_timing(rows: pa.Table) -> pa.Table:
    """The table without the columns that a clock decides."""
    return rows.drop_columns([name for name in rows.column_names if name in TIMING_COLUMNS])


def first_difference(first: Path, second: Path, tables: Iterable[str] = MEASURED_TABLES) -> Difference | None:
    """The first difference between two run directories, or None. A table that neither has is no difference.

    Raises UserError for a table that only one of them has, or that cannot be read.
    """
    for name in tables:
        if table_path(first, name).exists() or table_path(second, name).exists():
            found = first_difference_of_tables(name, read_table(first, name), read_table(second, name))
            if found:
                return found
    return None


def first_difference_of_tables(name: str, first: pa.Table, second: pa.Table) -> Difference | None:
    """The same for two tables of one name, whatever the order of their rows."""
    first, second = (without_timing(sort_by_key(name, rows)) for rows in (first, second))
    keys = list(KEY_COLUMNS[name])
    if not first.select(keys).equals(second.select(keys)):
        return _first_row_of_one(name, first.select(keys), second.select(keys))
    differing = [column for column in first.column_names if not first.column(column).equals(second.column(column))]
    places = {column: _first_place(first.column(column), second.column(column)) for column in differing}
    if not places:
        return None
    column = min(places, key=lambda column: places[column])
    row = places[column]
    key = first.select(keys).slice(row, 1).to_pylist()[0]
    return Difference(name, key, column, first.column(column)[row].as_py(), second.column(column)[row].as_py())


def _first_row_of_one(name: str, first: pa.Table, second: pa.Table) -> Difference:
    """The first row, in the order of keys, that only one side has."""
    rows, others = first.to_pylist(), second.to_pylist()
    for key, other in zip(rows, others, strict=False):
        if key != other:
            in_second = {tuple(row.values()) for row in others}
            return (
                Difference(name, key, None, True, False)
                if tuple(key.values()) not in in_second
                else Difference(name, other, None, False, True)
            )
    longer = rows if len(rows) > len(others) else others
    return Difference(name, longer[min(len(rows), len(others))], None, longer is rows, longer is others)


def _first_place(first: pa.ChunkedArray, second: pa.ChunkedArray) -> int:
    pairs = zip(first.to_pylist(), second.to_pylist(), strict=True)
    return next(row for row, (one, other) in enumerate(pairs) if one != other)
