"""Override words given to make, read from the environment variable MAKEFLAGS.

GNU make (3.81 to 4.x) hands its command-line variables to a recipe there, as `flags -- name=value name=value`, the
last one first, with `$` doubled and a backslash before each blank and backslash. Read from there, a value passes
through neither make's expansion nor a shell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_ESCAPED = re.compile(r"\\(.)|\$(\$)", re.DOTALL)
_WORD = re.compile(r"(?:\\.|[^ \t\\])+", re.DOTALL)
_OWN_VARIABLES = ("PYTHON",)


def override_words(environment: Mapping[str, str]) -> list[str]:
    """The words of the command line that are not make's own, in the order given.

    Names in capitals belong to make: PYTHON, and below another make (MAKELEVEL over 1) whatever that one was given.
    Blanks at the start of a value are lost in make itself.
    """
    words = _WORD.findall(environment.get("MAKEFLAGS", ""))
    given = words[words.index("--") + 1 :] if "--" in words else []
    overrides = [_plain(word) for word in reversed(given)]
    below_another_make = int(environment.get("MAKELEVEL") or 0) > 1
    return [word for word in overrides if not _is_makes_own(word.partition("=")[0], below_another_make)]


def _plain(word: str) -> str:
    """Undo make's escapes; `name:=value` is the same override as `name=value`."""
    name, _, value = _ESCAPED.sub(r"\1\2", word).partition("=")
    return f"{name.removesuffix(':')}={value}"


def _is_makes_own(name: str, below_another_make: bool) -> bool:
    return name in _OWN_VARIABLES or (below_another_make and re.fullmatch(r"[A-Z][A-Z0-9_]*", name) is not None)
