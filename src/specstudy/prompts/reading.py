"""Prompts from files: what each row has to hold, and the one line that says what is wrong with it."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specstudy.errors import UserError
from specstudy.prompts.files import Row, one_line, read_rows
from specstudy.prompts.prompt import Message, Prompt

DEFAULT_CATEGORY = "own"
ROLES = ("system", "user", "assistant")
MAX_TEXT_CHARACTERS = 16_000_000
"""No model reads a text longer than this."""
MAX_NAME_CHARACTERS = 1_000


@dataclass(frozen=True)
class Columns:
    """Where a prompt file keeps what: a row has a text or messages, the others may be missing."""

    text: str = "text"
    prompt_id: str = "prompt_id"
    category: str = "category"
    system: str = "system"
    messages: str = "messages"


DEFAULT_COLUMNS = Columns()


def read_prompts(path: Path, columns: Columns = DEFAULT_COLUMNS) -> list[Prompt]:
    """Prompts of a JSONL, CSV, Parquet or TXT file (one prompt a line), in file order.

    A row holds a text, or messages (a list of {role, content}; JSONL and Parquet) that end with what the user wants
    answered, and in any case a system text if there is one. Prompts without an id get one from the file's name and the
    line. Raises UserError in one line.
    """
    prompts: dict[str, Prompt] = {}
    for row in read_rows(path, columns.text):
        prompt = _prompt(row, path, columns)
        if prompt.prompt_id in prompts:
            shown = one_line(prompt.prompt_id, 60)
            raise UserError(f"{row.place}: {columns.prompt_id} {shown!r} occurs twice; ids must be unique")
        prompts[prompt.prompt_id] = prompt
    if not prompts:
        raise UserError(f"{path} holds no prompts")
    return list(prompts.values())


def select(prompts: Sequence[Prompt], categories: Sequence[str] | None, per_category: int | None) -> list[Prompt]:
    """The prompts of these categories, at most the first `per_category` of each."""
    known = list(dict.fromkeys(p.category for p in prompts))
    for category in categories or ():
        if category not in known:
            raise UserError(
                f"prompts.categories: no prompt of category {category!r}; there are {one_line(', '.join(known))}"
            )
    taken: dict[str, int] = {}
    chosen = []
    for prompt in prompts:
        taken[prompt.category] = taken.get(prompt.category, 0) + 1
        if (categories is None or prompt.category in categories) and (
            per_category is None or taken[prompt.category] <= per_category
        ):
            chosen.append(prompt)
    return chosen


def _prompt(row: Row, path: Path, columns: Columns) -> Prompt:
    prompt_id = row.values.get(columns.prompt_id)
    if isinstance(prompt_id, int) and not isinstance(prompt_id, bool):
        prompt_id = str(prompt_id)
    system = _text(row.values.get(columns.system), columns.system, row.place, may_be_blank=True)
    text = _text(row.values.get(columns.text), columns.text, row.place)
    history: Sequence[Message] = ()
    messages = row.values.get(columns.messages)
    if messages is not None and text is not None:
        raise UserError(f"{row.place} has both {columns.text} and {columns.messages}; give one of them")
    if messages is not None:
        system, history, text = _conversation(messages, system, columns, row.place)
    if text is None:
        there = one_line(", ".join(map(str, row.values))) or "nothing"
        raise UserError(
            f"{row.place} has no {columns.text} and no {columns.messages} (it has {there}); "
            "prompts.text_column names the column"
        )
    return Prompt(
        prompt_id=_name(prompt_id, columns.prompt_id, row.place) or f"{_stem(path)}-{row.number:04d}",
        category=_name(row.values.get(columns.category), columns.category, row.place) or DEFAULT_CATEGORY,
        text=text,
        system=system,
        history=tuple(history),
    )


def _conversation(
    listed: object, system: str | None, columns: Columns, place: str
) -> tuple[str | None, Sequence[Message], str]:
    """System text, earlier messages and what the user wants answered."""
    if not isinstance(listed, list) or not listed:
        raise UserError(
            f"{place}: {columns.messages} must be a list of {{role, content}} that is not empty (in JSONL or Parquet)"
        )
    messages = [_message(each, f"{columns.messages}[{number}]", place) for number, each in enumerate(listed)]
    if messages[0].role == "system":
        if system is not None:
            raise UserError(f"{place} has both {columns.system} and a system message; give one of them")
        system, messages = messages[0].content, messages[1:]
    if any(message.role == "system" for message in messages):
        raise UserError(f"{place}: a system message must be the first of {columns.messages}, and the only one")
    if not messages or messages[-1].role != "user":
        raise UserError(f"{place}: the last of {columns.messages} must be the user's: it is what gets answered")
    return system, messages[:-1], messages[-1].content


def _message(value: object, name: str, place: str) -> Message:
    if not isinstance(value, Mapping):
        raise UserError(f"{place}: {name} must be an object with role and content; got {_shown(value)}")
    role, content = value.get("role"), value.get("content")
    if role not in ROLES:
        raise UserError(f"{place}: {name} has the role {_shown(role)}; roles are {', '.join(ROLES)}")
    if more := [key for key, held in value.items() if held is not None and key not in ("role", "content")]:
        raise UserError(f"{place}: {name} holds {_shown(more[0])} besides role and content, which would not be shown")
    if isinstance(content, list):
        raise UserError(f"{place}: the content of {name} is a list of parts; only content that is one text is measured")
    text = _text(content, f"the content of {name}", place, may_be_blank=role == "system")
    if text is None:
        raise UserError(f"{place}: {name} has no content")
    return Message(str(role), text)


def _text(value: object, name: str, place: str, may_be_blank: bool = False) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not (value.strip() or may_be_blank):
        raise UserError(f"{place}: {name} must be a text that is not empty; got {_shown(value)}")
    if len(value) > MAX_TEXT_CHARACTERS:
        raise UserError(f"{place}: {name} has {len(value):,} characters; at most {MAX_TEXT_CHARACTERS:,} are read")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{place}: {name} holds half of a surrogate pair at character {error.start}") from error
    return value


def _name(value: object, name: str, place: str) -> str | None:
    """An id or a category: a text that can be shown in one line."""
    text = _text(value, name, place)
    if text is not None and (len(text) > MAX_NAME_CHARACTERS or any(map(_breaks_lines, text))):
        raise UserError(
            f"{place}: {name} must be one line of at most {MAX_NAME_CHARACTERS} characters; got {_shown(text)}"
        )
    return text


def _breaks_lines(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Zl", "Zp")


def _stem(path: Path) -> str:
    """The file's name without its ending, as part of an id."""
    return one_line(path.stem.encode(errors="replace").decode(), MAX_NAME_CHARACTERS // 2)


def _shown(value: object) -> str:
    return repr(one_line(str(value)[:200], 40))
