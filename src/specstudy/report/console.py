"""Where reports are printed: in colour on a terminal, as plain text of a fixed width elsewhere."""

from __future__ import annotations

import os

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_PLAIN_WIDTH = 100


def report_console() -> Console:
    """A console on stdout. Away from a terminal it is as wide as COLUMNS says, else 100 columns, without colour."""
    console = Console(highlight=False, markup=False)
    if console.is_terminal:
        return console
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() and int(columns) else _PLAIN_WIDTH
    return Console(highlight=False, markup=False, width=width, no_color=True)


def report_table(title: str) -> Table:
    """An empty table in the look of all reports."""
    return Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False, expand=False
    )


def print_marked(console: Console, text: str, mark: str = "-") -> None:
    """Prints a text behind a mark, its further lines under the first; what is longer than a line is folded."""
    indent = len(mark) + 1
    for place, line in enumerate(Text(text).wrap(console, console.width - indent, overflow="fold")):
        line.rstrip()
        console.print(Text(f"{mark} " if place == 0 else " " * indent).append_text(line), soft_wrap=True)
