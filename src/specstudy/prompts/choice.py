"""The chat template of a tokenizer, chosen and tried before any work."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from specstudy.errors import UserError, one_line
from specstudy.prompts.chat_template import ChatTemplate, Conversation, EndlessTemplateError
from specstudy.prompts.prompt import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DEFAULT = "default"
_USER = Message("user", "Hi")
_TRIED = (Conversation((_USER,)), Conversation((Message("system", "Hi"), _USER)))


def use_template(tokenizer: PreTrainedTokenizerBase, model: str, name: str, thinking: bool | None) -> None:
    """Leave a tokenizer with the template of this name alone. `model` is what its user set, for messages.

    Raises UserError where there is no such template, where it comes to no end, or where `thinking` changes nothing.
    """
    templates = tokenizer.chat_template
    if isinstance(templates, dict):
        if name not in templates:
            choices = one_line(", ".join(f"prompts.template={each}" for each in templates))
            raise UserError(f"{model} has several chat templates, none of them {one_line(name, 60)}; give {choices}")
        tokenizer.chat_template = templates[name]
    elif name != DEFAULT:
        raise UserError(f"prompts.template={one_line(name, 60)}: {model} has no chat templates with names")
    if tokenizer.chat_template:
        _refuse_endless(ChatTemplate(tokenizer), model)
    if thinking is not None and not _has_switch(tokenizer):
        raise UserError(
            f"prompts.thinking={str(thinking).lower()}: {model} has no chat template with such a switch; "
            "leave it at null"
        )


def _has_switch(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether thinking or not makes a difference to the chat template; True for one that refuses all that is tried."""
    if not tokenizer.chat_template:
        return False
    switched = [ChatTemplate(tokenizer, thinking) for thinking in (True, False)]
    differences = []
    for conversation in _TRIED:
        with contextlib.suppress(ValueError):
            first, second = (template.apply(conversation) for template in switched)
            differences.append(first != second)
    return any(differences) or not differences


def _refuse_endless(template: ChatTemplate, model: str) -> None:
    try:
        template.apply(_TRIED[0])
    except EndlessTemplateError as error:
        raise UserError(f"{model}: {error}") from error
    except ValueError:  # which prompts it refuses is told one by one
        return
