"""Where reports are printed: in colour on a terminal, as plain text of a fixed width elsewhere."""

from __future__ import annotations

import os

from rich import box
from rich.console import Console
from rich.table import Table

_PLAIN_WIDTH = 80


def report_console() -> Console:
    """A console on stdout. Away from a terminal it is as wide as COLUMNS says, else 80 columns, without colour."""
    console = Console(highlight=False)
    if console.is_terminal:
        return console
    return Console(highlight=False, width=int(os.environ.get("COLUMNS", _PLAIN_WIDTH)), no_color=True)


def report_table(title: str) -> Table:
    """An empty table in the look of all reports."""
    return Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False, expand=False
    )
