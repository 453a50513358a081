"""Which columns of a prompt file hold what: those that settings name, and those that files usually have."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from specstudy.errors import UserError, one_line

NO_COLUMN = "none"
TEXT, MESSAGES = "text", "messages"
_USUAL_CONVERSATIONS = ("conversations", "turns")
_USUAL_TEXTS = ("text", "prompt", "question", "instruction", "query", "problem", "input", "goal", "content")
_USUAL_CONTEXTS = ("input", "context")


@dataclass(frozen=True)
class Columns:
    """Where a prompt file keeps what: a row has a text or messages, the others may be missing.

    `none` stands for no column. `context` is put after the text, an empty line between. Prompts of one value in `group`
    are not independent of each other.
    """

    text: str = TEXT
    prompt_id: str = "prompt_id"
    category: str = "category"
    system: str = "system"
    messages: str = MESSAGES
    context: str = NO_COLUMN
    group: str = NO_COLUMN

    @property
    def _named(self) -> list[str]:
        """Those of text and messages that a setting names: one of them has to be in every row."""
        defaults = ((self.text, TEXT), (self.messages, MESSAGES))
        return [column for column, default in defaults if column not in (default, NO_COLUMN)]

    def of_the_prompt(self, values: Mapping[str, Any], place: str) -> str:
        """The column of a row that holds what the user wants answered. Raises UserError for none, or for two.

        One that a setting names comes before one that is only usual.
        """
        wanted = self._named or [column for column in (self.text, self.messages) if column != NO_COLUMN]
        there = [column for column in wanted if not is_empty(values.get(column))]
        if len(there) > 1:
            raise UserError(
                f"{place} has both {self.text} and {self.messages}; give one of them, or choose: "
                f"prompts.messages_column=none takes {self.text}, prompts.text_column=none takes {self.messages}"
            )
        if not self._named:
            there += [column for column in _USUAL_CONVERSATIONS if _is_list(values.get(column))]
        if not there:
            raise UserError(f"{place} has no {' and no '.join(wanted)} ({_shown(values)}); {self._advice(values)}")
        return there[0]

    def are_messages(self, column: str) -> bool:
        """Whether a column holds messages."""
        return column in (self.messages, "conversations")

    def may_be_turns(self, column: str) -> bool:
        """Whether a list in a column may stand for the turns of a user."""
        return column != TEXT

    def unused(self, held: Collection[str], used: Collection[str]) -> str:
        """One line on the columns of a file that nothing was taken from, or nothing."""
        left = [name for name in held if name not in used]
        if not left:
            return ""
        context = next((name for name in left if name.lower() in _USUAL_CONTEXTS), "")
        hint = context and f"; prompts.context_column={context} puts it after the text"
        return f"not used: {one_line(', '.join(left))}{hint}"

    def refuse_absent(self, seen: Collection[str], file: str) -> None:
        """Raise UserError for a column that a setting names and no row holds."""
        default = Columns()
        named = {
            "id_column": (self.prompt_id, default.prompt_id),
            "category_column": (self.category, default.category),
            "context_column": (self.context, default.context),
            "group_column": (self.group, default.group),
        }
        for setting, (column, usual) in named.items():
            if column not in (usual, NO_COLUMN) and column not in seen:
                raise UserError(
                    f"prompts.{setting}={one_line(column, 60)}: no row of {file} has that; there are "
                    f"{one_line(', '.join(seen))}"
                )

    def _advice(self, values: Mapping[str, Any]) -> str:
        """The setting that would read this row, as far as one can tell."""
        texts = {name.lower(): name for name, value in values.items() if _is_text(value)}
        near = difflib.get_close_matches(self.text.lower(), texts, n=1)
        likely = [("text", texts[name]) for name in (*near, *_USUAL_TEXTS) if name in texts]
        lists = [("messages", name) for name, value in values.items() if _is_list(value)]
        tried = [*lists, *likely] if self._named == [self.messages] else [*likely, *lists]
        if not tried and not {self.text, self.messages}.isdisjoint(values):
            return "fill it in, or leave the row out"
        if not tried:
            return "prompts.text_column names the column"
        kind, name = tried[0]
        return f"prompts.{kind}_column={one_line(name, 60)} takes {one_line(name, 60)}"


def is_empty(value: object) -> bool:
    """Whether a field holds nothing: no value, a blank text, an empty list or object."""
    return (
        value is None
        or (isinstance(value, str) and not value.strip())
        or (isinstance(value, list | dict) and not value)
    )


def _is_list(value: object) -> bool:
    return isinstance(value, list) and bool(value)


def _is_text(value: object) -> bool:
    if isinstance(value, list):
        return _is_list(value) and all(isinstance(each, str) for each in value)
    return isinstance(value, str) and bool(value.strip())


def _shown(values: Mapping[str, Any]) -> str:
    empty = [name for name, value in values.items() if is_empty(value)]
    held = one_line(", ".join(name for name in map(str, values) if name not in empty)) or "nothing"
    return f"it has {held}" + (f"; {one_line(', '.join(map(str, empty)))} empty" if empty else "")
