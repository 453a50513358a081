"""One explicit pyarrow schema per table, derived from the row types of `records`; rows to tables and back."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from specstudy.records import KEY_COLUMNS, TABLES

SCHEMA_VERSION = 5
"""Raised whenever a column changes its name, type or meaning: results of another version are computed again."""

_ARROW_TYPES: dict[type, pa.DataType] = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}

_SURROGATE = re.compile("[\ud800-\udfff]")


class InvalidRecordError(ValueError):
    """A row that its table's schema refuses; the message names table, column and row."""


@cache
def schema_of(table: str) -> pa.Schema:
    """The schema of a table: types, nullability, and per column the metadata `meaning` and `unit`.

    Raises KeyError for a table that `records.TABLES` does not name.
    """
    row_type = TABLES[table]
    hints = get_type_hints(row_type)
    fields = [_field(f.name, hints[f.name], f.metadata) for f in dataclasses.fields(row_type)]
    return pa.schema(fields, {"table": table, "row": row_type.__doc__ or "", "schema_version": str(SCHEMA_VERSION)})


def empty_table(table: str) -> pa.Table:
    """A table without rows that has its schema all the same."""
    return schema_of(table).empty_table()


def to_table(table: str, records: Sequence[object]) -> pa.Table:
    """Rows of `records.TABLES[table]` as a table with its declared schema.

    Raises InvalidRecordError for a row of another type, a value of another type, a NaN or infinite number (in a list
    too), or None where the column is not optional.
    """
    row_type = TABLES[table]
    for row, record in enumerate(records):
        if type(record) is not row_type:
            expected, found = row_type.__name__, type(record).__name__
            raise InvalidRecordError(f"table {table}, row {row}: expected a {expected}, found a {found}")
    schema = schema_of(table)
    columns = [_array(table, field, [getattr(record, field.name) for record in records]) for field in schema]
    result = pa.Table.from_arrays(columns, schema=schema)
    validate(table, result)
    return result


def to_records(table: str, rows: pa.Table) -> list[Any]:
    """The rows of a table as instances of `records.TABLES[table]`, in order."""
    return [TABLES[table](**row) for row in rows.to_pylist()]


def with_declared_schema(table: str, rows: pa.Table) -> pa.Table:
    """The same rows under the declared schema, so that what a file format adds to or drops from metadata is undone.

    Raises InvalidRecordError where names, order, types or nullability of columns differ from the declaration.
    """
    schema = schema_of(table)
    if not rows.schema.equals(schema):
        raise InvalidRecordError(f"table {table}: its columns are not the declared ones ({_difference(schema, rows)})")
    return pa.Table.from_arrays(rows.columns, schema=schema)


def validate(table: str, rows: pa.Table) -> None:
    """Raises InvalidRecordError for other columns than declared, a null in a required column, a NaN or an infinity."""
    with_declared_schema(table, rows).validate(full=True)
    for field in schema_of(table):
        if found := _first_fault(field, rows.column(field.name)):
            row, fault = found
            raise InvalidRecordError(f"table {table}, column {field.name}, row {row}: {fault}")


def check_unique(table: str, rows: pa.Table) -> None:
    """Raises InvalidRecordError if two rows share the values of the table's key columns, naming the first such key."""
    keys = list(KEY_COLUMNS[table])
    counts = rows.group_by(keys).aggregate([([], "count_all")])
    doubled = counts.filter(pc.greater(counts["count_all"], 1))
    if doubled.num_rows:
        first = doubled.select(keys).sort_by([(name, "ascending") for name in keys]).slice(0, 1).to_pylist()[0]
        named = ", ".join(f"{name}={value!r}" for name, value in first.items())
        raise InvalidRecordError(f"table {table}: {doubled.num_rows} keys occur more than once, first: {named}")


def sort_by_key(table: str, rows: pa.Table) -> pa.Table:
    """The rows in the order of the table's key columns, so that the order of computing leaves no trace."""
    return rows.sort_by([(name, "ascending") for name in KEY_COLUMNS[table]])


def _is_text(value: object) -> bool:
    # A lone surrogate is a Python string that UTF-8, and so Parquet, cannot hold.
    return isinstance(value, str) and not _SURROGATE.search(value)


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and -(2**63) <= int(value) < 2**63


def _is_number(value: object) -> bool:
    return isinstance(value, float | np.floating) or _is_integer(value)


def _is_truth_value(value: object) -> bool:
    return isinstance(value, bool | np.bool_)


_FITS: dict[pa.DataType, Callable[[object], bool]] = {
    pa.string(): _is_text,
    pa.int64(): _is_integer,
    pa.float64(): _is_number,
    pa.bool_(): _is_truth_value,
}


def _all_fit(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list | tuple) and all(e is None or fits(e) for e in value)


def _field(name: str, hint: Any, metadata: Any) -> pa.Field:
    choices = [choice for choice in get_args(hint) if choice is not NoneType]
    optional = NoneType in get_args(hint)
    described = {"meaning": metadata["meaning"], "unit": metadata["unit"]}
    return pa.field(name, _arrow_type(choices[0] if optional else hint), nullable=optional, metadata=described)


def _arrow_type(hint: Any) -> pa.DataType:
    if get_origin(hint) is list:
        return pa.list_(pa.field("element", _ARROW_TYPES[get_args(hint)[0]], nullable=False))
    return _ARROW_TYPES[hint]


def _array(table: str, field: pa.Field, values: list[Any]) -> pa.Array:
    """A column of its declared type. Arrow alone would cut 2.5 to 2 and take bytes for text, so each value is asked."""
    fits = _all_fit(_FITS[field.type.value_type]) if pa.types.is_list(field.type) else _FITS[field.type]
    for row, value in enumerate(values):
        if value is not None and not fits(value):
            shown = f"{value!r:.60}"
            raise InvalidRecordError(f"table {table}, column {field.name}, row {row}: {shown} is no {field.type}")
    return pa.array(values, type=field.type)


def _first_fault(field: pa.Field, column: pa.ChunkedArray) -> tuple[int, str] | None:
    """The first row at fault and what is wrong with it."""
    if not field.nullable and column.null_count:
        return _first(pc.is_null(column)), "null, but the column is not optional"
    values, rows = column, None
    if pa.types.is_list(field.type):
        values, rows = pc.list_flatten(column), pc.list_parent_indices(column)
        if values.null_count:
            return rows[_first(pc.is_null(values))].as_py(), "a null inside the list"
    if pa.types.is_floating(values.type) and (place := _first(pc.invert(pc.is_finite(values)))) >= 0:
        row = place if rows is None else rows[place].as_py()
        return row, f"{values[place].as_py()} is not a finite number"
    return None


def _first(mask: pa.ChunkedArray) -> int:
    """The first place that is true, -1 if there is none."""
    return int(pc.index(mask, True).as_py())


def _difference(schema: pa.Schema, rows: pa.Table) -> str:
    if rows.column_names != schema.names:
        missing = [name for name in schema.names if name not in rows.column_names]
        unknown = [name for name in rows.column_names if name not in schema.names]
        return f"missing {missing}, unknown {unknown}" if missing or unknown else "another order of columns"
    field = next(field for field in schema if not rows.schema.field(field.name).equals(field))
    return f"column {field.name} is {rows.schema.field(field.name)}, declared {field}"
