"""Foreign code within bounds: so many lines of Python and no more, counted, so that every machine stops at the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import TraceFunction

MAX_LINES = 10_000_000
MAX_CHARACTERS = 2**30


class OutOfBoundsError(Exception):
    """The code ran for longer, or made more text, than it may."""


@contextmanager
def bounded(max_lines: int = MAX_LINES, max_characters: int = MAX_CHARACTERS) -> Iterator[None]:
    """Raise OutOfBoundsError in this block where it executes more lines, or where its functions return more text.

    It holds in the thread that enters it. A single operation of the interpreter cannot be stopped.
    """
    n_lines = n_characters = 0

    def count(frame: FrameType, event: str, returned: object) -> TraceFunction:
        nonlocal n_lines, n_characters
        n_lines += 1
        if event == "return" and isinstance(returned, str):
            n_characters += len(returned)
        if n_lines > max_lines or n_characters > max_characters:
            raise OutOfBoundsError
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(before)
