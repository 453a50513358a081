"""The one exception whose message is meant for the person at the keyboard."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class UserError(Exception):
    """Something the user can mend: the message is one line saying what is wrong, where, and what would be right."""


def no_such(kind: str, given: str, valid: Sequence[str], shown: str | None = None, nearest: str = "") -> UserError:
    """The error for a name that does not exist: `shown` (else `given`), the nearest that does, and all that do.

    `nearest` is proposed where nothing in `valid` resembles `given`.
    """
    near = next(iter(difflib.get_close_matches(given, valid, n=1)), nearest)
    hint = f"; did you mean {near}?" if near else ""
    return UserError(f"{shown or given}: no such {kind}{hint} (valid here: {', '.join(valid) or 'nothing'})")


def one_line(text: str, longest: int = 200) -> str:
    """A text as part of a message: white space and what cannot be printed are single spaces, the end is cut off."""
    plain = "".join(c if c.isprintable() else " " for c in text[: 4 * longest])
    words = " ".join(plain.split())
    return words if len(words) <= longest else words[:longest] + "..."
