"""Conversations in the forms that files have: {role, content}, and ShareGPT's {from, value}."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specstudy.errors import UserError
from specstudy.prompts.columns import is_empty
from specstudy.prompts.fields import shown, text_of
from specstudy.prompts.prompt import Message

ROLES = ("system", "user", "assistant")
_OTHER_NAMES = {"human": "user", "gpt": "assistant"}


@dataclass(frozen=True)
class Talk:
    """What the user wants answered, what was said before, and whether an answer stood after it."""

    system: str | None
    history: tuple[Message, ...]
    text: str
    was_answered: bool


def read_conversation(listed: object, name: str, place: str) -> Talk:
    """A list of messages up to the last that is the user's. Raises UserError in one line."""
    if not isinstance(listed, list) or not listed:
        wanted = "a list of {role, content} (in JSON or Parquet)"
        raise UserError(f"{place}: {name} must be {wanted}; got {shown(listed)}")
    n_asked = max((n for n, each in enumerate(listed, start=1) if _role(each) == "user"), default=0)
    messages = [_message(each, f"{name}[{i}]", place) for i, each in enumerate(listed[: n_asked or len(listed)])]
    system = None
    if messages[0].role == "system":
        system, messages = messages[0].content, messages[1:]
    if any(message.role == "system" for message in messages):
        raise UserError(f"{place}: a system message must be the first of {name}, and the only one")
    if not n_asked:
        raise UserError(f"{place}: none of {name} is the user's; the last of the user's is what gets answered")
    *history, asked = messages
    return Talk(system, tuple(history), asked.content, n_asked < len(listed))


def _message(value: object, name: str, place: str) -> Message:
    if not isinstance(value, Mapping):
        raise UserError(f"{place}: {name} must be an object with role and content; got {shown(value)}")
    role, keys = _role(value), _keys(value)
    content = value.get(keys[1])
    if role is None:
        raise UserError(f"{place}: {name} has the role {shown(value.get(keys[0]))}; roles are {', '.join(ROLES)}")
    if more := [key for key, held in value.items() if not is_empty(held) and key not in keys]:
        raise UserError(
            f"{place}: {name} holds {shown(more[0])} besides {' and '.join(keys)}, which would not be shown"
        )
    if isinstance(content, list):
        raise UserError(f"{place}: the content of {name} is a list of parts; only content that is one text is measured")
    text = text_of(content, f"the content of {name}", place, may_be_blank=role == "system")
    if text is None:
        raise UserError(f"{place}: {name} has no content")
    return Message(role, text)


def _keys(message: Mapping[str, object]) -> tuple[str, str]:
    return ("role", "content") if "role" in message else ("from", "value")


def _role(message: object) -> str | None:
    """Who says a message, or None for whoever takes no part."""
    given = message.get(_keys(message)[0]) if isinstance(message, Mapping) else None
    role = _OTHER_NAMES.get(given, given) if isinstance(given, str) else None
    return role if role in ROLES else None
