"""Single fields of a prompt file: texts that can be measured, names that can be shown in a line."""

from __future__ import annotations

import unicodedata

from specstudy.errors import UserError, one_line

MAX_TEXT_CHARACTERS = 16_000_000
"""No model reads a text longer than this."""
MAX_NAME_CHARACTERS = 1_000
_TURNS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")  # characters that reorder the rest of a line


def text_of(value: object, name: str, place: str, may_be_blank: bool = False) -> str | None:
    """A text, or None where there is none. A blank one is none, unless it may be. Raises UserError."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise UserError(f"{place}: {name} must be a string; got {shown(value)}")
    if not (value.strip() or may_be_blank):
        return None
    if len(value) > MAX_TEXT_CHARACTERS:
        raise UserError(f"{place}: {name} has {len(value):,} characters; at most {MAX_TEXT_CHARACTERS:,} are read")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{place}: {name} holds half of a surrogate pair at character {error.start}") from error
    return value


def name_of(value: object, name: str, place: str) -> str | None:
    """An id or a category: a string that can be shown in one line, or an integer. Raises UserError."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1:
        value = str(int(value))
    if not isinstance(value, str | None):
        raise UserError(f"{place}: {name} must be a string or an integer; got {shown(value)}")
    text = text_of(value, name, place)
    if text is not None and (len(text) > MAX_NAME_CHARACTERS or any(map(_breaks_lines, text))):
        raise UserError(
            f"{place}: {name} must be one line of at most {MAX_NAME_CHARACTERS} characters; got {shown(text)}"
        )
    return text


def shown(value: object) -> str:
    """A value as part of a message."""
    return repr(one_line(str(value)[:200], 40))


def _breaks_lines(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Zl", "Zp") or unicodedata.bidirectional(character) in _TURNS
