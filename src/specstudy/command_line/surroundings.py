"""What notebooks, cron, containers and CI hand down, made harmless. Imported before all that reads it.

A command that has measured for hours must not end in a traceback because of a variable that was meant for another
program, or because nobody reads what it prints.
"""

from __future__ import annotations

import io
import os
import re
import sys
import warnings
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Outlet(io.RawIOBase):
    """A standard stream that loses what it cannot write (a reader that left, a full disk) and remembers why."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.fault: OSError | None = None

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    def write(self, content: ReadableBuffer) -> int:
        if self.fault is None:
            try:
                return os.write(self._descriptor, content)
            except OSError as fault:
                self.fault = fault
        return memoryview(content).nbytes


def settle_environment() -> None:
    """Before libraries are imported: variables that would make them raise, and descriptors that are closed."""
    if os.environ.pop("PYTHONOPTIMIZE", "") and sys.flags.optimize > 1:  # transformers needs its docstrings
        os.execv(sys.executable, sys.orig_argv)
    os.environ["MPLBACKEND"] = "agg"  # figures are files here, wherever other programs show theirs
    for name in ("COLUMNS", "LINES"):
        if not re.fullmatch("[1-9][0-9]{0,3}", os.environ.get(name, "1")):
            del os.environ[name]
    if "error" in os.environ.get("PYTHONWARNINGS", ""):
        del os.environ["PYTHONWARNINGS"]
        warnings.simplefilter("ignore")
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # closed: the next file would take its number, and whatever is printed
            os.open(os.devnull, os.O_RDWR)


def settle_streams() -> list[Outlet]:
    """Let standard output and error take any character and survive their readers. None of them where a test has put
    its own in place."""
    if sys.stdout is not sys.__stdout__ or sys.stderr is not sys.__stderr__:
        return []
    outlets = [Outlet(1), Outlet(2)]
    sys.stdout, sys.stderr = (_text(*given) for given in zip(outlets, (sys.stdout, sys.stderr), strict=True))
    return outlets


def _text(outlet: Outlet, before: TextIO | None) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(outlet),
        encoding=before.encoding if before else "utf-8",
        errors="backslashreplace",
        line_buffering=outlet.isatty() or outlet.fileno() == 2,
    )


settle_environment()
