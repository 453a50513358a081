"""A tokenizer's chat template with its settings fixed, so that a prompt is the same text on any day."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from specstudy.errors import one_line
from specstudy.prompts.bounded import OutOfBoundsError, bounded
from specstudy.prompts.fields import MAX_TEXT_CHARACTERS
from specstudy.prompts.prompt import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DATE = datetime.datetime(2024, 7, 26)
"""The day that templates which ask for today's date are told: the one that Llama 3's fall back to without a clock."""
SWITCHES = ("enable_thinking", "thinking")
"""The names under which templates of different families look for a switch of thinking."""
_DATE_CODES = [f"%{code}" for code in ("-d", "-m", "-H", "-I", *"aAbBdHIjmMpSyYFe")]


class EndlessTemplateError(ValueError):
    """A template that has to be stopped."""


@dataclass(frozen=True)
class Conversation:
    """Messages as they are handed to a template; `is_merged`: the system text opens the first user message."""

    messages: tuple[Message, ...]
    is_merged: bool = False

    def with_contents(self, contents: Sequence[str]) -> Conversation:
        """The same messages saying something else."""
        changed = [replace(m, content=content) for m, content in zip(self.messages, contents, strict=True)]
        return replace(self, messages=tuple(changed))

    def for_template(self) -> list[dict[str, str]]:
        """The messages in the form that templates take."""
        made = [{"role": m.role, "content": m.content} for m in self.messages]
        if self.is_merged:
            system, first, *others = made
            made = [{**first, "content": f"{system['content']}\n\n{first['content']}"}, *others]
        return made


class ChatTemplate:
    """`thinking` is what the template gets under each name of such a switch (None: its own default)."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, thinking: bool | None = None) -> None:
        self.tokenizer = tokenizer
        template = tokenizer.get_chat_template()
        self.may_ask_for_date = "strftime_now" in template
        self._template = _fixed_clock() + template if self.may_ask_for_date else template
        self._settings = {} if thinking is None else dict.fromkeys(SWITCHES, thinking)

    def apply(self, conversation: Conversation, generation_prompt: bool = True) -> str:
        """The conversation as the model sees it.

        Raises ValueError in one line where the template refuses it, EndlessTemplateError where it comes to no end.
        """
        try:
            with bounded():
                text = self.tokenizer.apply_chat_template(
                    conversation.for_template(),
                    chat_template=self._template,
                    tokenize=False,
                    add_generation_prompt=generation_prompt,
                    **self._settings,
                )
        except OutOfBoundsError as error:
            raise EndlessTemplateError("the chat template comes to no end within reasonable time") from error
        except Exception as error:  # templates raise jinja2 errors and whatever their own raise_exception gives
            reason = one_line(str(error)) or type(error).__name__
            raise ValueError(f"the chat template refuses this prompt: {reason}") from error
        if len(text) > MAX_TEXT_CHARACTERS:
            raise ValueError(f"the chat template makes {len(text):,} characters of this prompt")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError("the chat template writes half of a surrogate pair") from error
        return str(text)

    def skeleton(self, conversation: Conversation, leave_empty: bool = False) -> list[str]:
        """The template's own text with the messages' numbers between: [text, number, text, number, ..., text].

        It is rendered with a mark for each message, so that it is the template's whatever anybody typed; with
        `leave_empty` an empty system text stays empty, and has no number.
        """
        marks = {
            number: f"\ue000{message.role} {number}\ue001"
            for number, message in enumerate(conversation.messages)
            if not (leave_empty and message.is_empty_system)
        }
        contents = [marks.get(number, message.content) for number, message in enumerate(conversation.messages)]
        pieces = re.split("\ue000[a-z]+ ([0-9]+)\ue001", self.apply(conversation.with_contents(contents)))
        for number in marks:
            if str(number) not in pieces[1::2]:
                role = conversation.messages[number].role
                raise ValueError(f"the chat template does not show the {role} text as it was written")
        return pieces


def _fixed_clock() -> str:
    """What a template is preceded by, so that its strftime_now gives DATE (functions cannot be handed to it)."""
    filled = "".join(f"|replace('{code}', '{DATE.strftime(code)}')" for code in _DATE_CODES)
    return "{% macro strftime_now(format) %}{{ format" + filled + " }}{% endmacro %}\n"
