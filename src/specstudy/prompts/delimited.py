"""Rows of CSV as spreadsheets and people write it: other separators, empty columns, spaces before quotes."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

from specstudy.errors import UserError, one_line

_SEPARATORS = ",;\t|"
_LONGEST_FIELD = 2**31 - 1
_EXCELS_FIRST_LINE = re.compile(rf"sep=([{_SEPARATORS}])\r?\n")


def read_delimited(text: str, path: Path, separator: str | None = None) -> Iterator[tuple[int, dict[str, str]]]:
    """The fields that are not empty, by column, each row with the number of its last line.

    A separator that is not given is the one that the file names in Excel's way, or else that of its first line.
    Columns without a name are left aside: pandas' index before the others, Excel's empty ones after them. Rows without
    any text are left out. Raises UserError in one line.
    """
    n_skipped = 0
    if named := _EXCELS_FIRST_LINE.match(text):
        separator, text, n_skipped = named[1], text[named.end() :], 1
    csv.field_size_limit(_LONGEST_FIELD)
    separator = separator or _separator(text)
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=separator,
        skipinitialspace=_has_spaces_before_quotes(text, separator),
        strict=True,
    )
    try:
        names = [name.strip() for name in next(reader, [])]
        given = [name for name in names if name]
        if len(set(given)) < len(given):
            raise UserError(f"{path} line 1 names a column twice; the first line names the columns")
        n_named = max((i for i, name in enumerate(names, start=1) if name), default=0)
        for fields in reader:
            number = reader.line_num + n_skipped
            if any(field.strip() for field in fields[n_named:]):
                raise UserError(
                    f"{path} line {number} has more fields than the header; put quotes around a field that holds "
                    f"{'commas' if separator == ',' else repr(separator)}"
                )
            if any(field.strip() for field in fields):
                # strict=False: a row may end early, and empty columns may follow.
                pairs = zip(names, fields, strict=False)
                yield number, {name: field for name, field in pairs if name and field}
    except csv.Error as error:
        raise UserError(
            f"{path} line {reader.line_num + n_skipped} is not CSV: {one_line(str(error))}; "
            "a quote within a quoted text is written twice"
        ) from error


def _separator(text: str) -> str:
    """A comma where the first line has one, else what makes most columns of it."""
    first = next(iter(io.StringIO(text, newline=None)), "")
    n_columns = {separator: len(next(csv.reader([first], delimiter=separator), [])) for separator in _SEPARATORS}
    return "," if n_columns[","] > 1 else max(_SEPARATORS, key=lambda separator: n_columns[separator])


def _has_spaces_before_quotes(text: str, separator: str) -> bool:
    """Whether a quoted field opens after a space. Within quoted texts a quote is doubled, or ends the field."""
    after = re.escape(separator)
    return bool(re.search(rf'(?m)(?:^|{after}) +"(?!["\r\n{after}]|\Z)', text))
