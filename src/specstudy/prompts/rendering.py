"""A prompt in its chat template: the text, and where in it what was written stands."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from specstudy.prompts.prompt import Prompt, RenderedPrompt
from specstudy.prompts.structure import Layout, Message, labelled, tokenize

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def render(prompt: Prompt, tokenizer: PreTrainedTokenizerBase) -> RenderedPrompt:
    """Render with the chat template, or as raw text where the tokenizer has none; label every position by span.

    Raises ValueError where the template refuses the prompt, or changes it in a way that cannot be followed.
    """
    layout = _chat_layout(prompt, tokenizer) if tokenizer.chat_template else _raw_layout(prompt)
    tokens = tokenize(layout.text, tokenizer)
    if not tokens:
        raise ValueError("the tokenizer makes no token of this prompt")
    positions = labelled(tokens, layout, tokenizer.bos_token_id)
    return RenderedPrompt(prompt, layout.text, tuple(positions), layout.text[layout.generation_start :])


def _raw_layout(prompt: Prompt) -> Layout:
    return Layout(prompt.text, (Message("user", 0, len(prompt.text)),), len(prompt.text))


def _chat_layout(prompt: Prompt, tokenizer: PreTrainedTokenizerBase) -> Layout:
    contents = ({} if prompt.system is None else {"system": prompt.system}) | {"user": prompt.text}
    skeleton = _skeleton(tokenizer, list(contents))
    text = _apply(tokenizer, contents)
    messages = _find_contents(skeleton, contents, text)
    if prompt.system is None:
        messages += _injected_system_prompt(tokenizer, skeleton[0])
    # Up to where the text is the same without a generation prompt, and never inside what was written.
    without = _apply(tokenizer, contents, generation_prompt=False)
    n_same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(text, without, strict=False)))
    return Layout(text, tuple(messages), max(n_same, *(m.stop for m in messages)))


def _apply(tokenizer: PreTrainedTokenizerBase, contents: Mapping[str, str], generation_prompt: bool = True) -> str:
    messages = [{"role": role, "content": content} for role, content in contents.items()]
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=generation_prompt))
    except Exception as error:  # templates raise jinja2 errors and whatever their own raise_exception gives
        raise ValueError(f"the chat template refuses this prompt: {' '.join(str(error).split())}") from error


def _skeleton(tokenizer: PreTrainedTokenizerBase, roles: Sequence[str]) -> list[str]:
    """The template's own text with the roles of the messages between: [text, role, text, role, ..., text].

    It is rendered with a mark for each message, so that it is the template's whatever the user typed.
    """
    marked = _apply(tokenizer, {role: f"\ue000{role}\ue001" for role in roles})
    return re.split(f"\ue000({'|'.join(roles)})\ue001", marked)


def _find_contents(skeleton: Sequence[str], contents: Mapping[str, str], text: str) -> list[Message]:
    """Where the contents stand: the skeleton with them in place, perhaps stripped, must be exactly the text."""
    roles = skeleton[1::2]
    for role in contents:
        if role not in roles:
            raise ValueError(f"the chat template does not show the {role} text as it was written")
    ways_to_write = [(c, c.strip(), c.lstrip(), c.rstrip()) for c in (contents[role] for role in roles)]
    for written in itertools.product(*map(dict.fromkeys, ways_to_write)):
        pieces = list(skeleton)
        pieces[1::2] = written
        if "".join(pieces) == text:
            stops = list(itertools.accumulate(map(len, pieces)))
            return [Message(skeleton[i], stops[i - 1], stops[i]) for i in range(1, len(pieces), 2)]
    raise ValueError("the chat template changes what was written in a way that cannot be followed")


def _injected_system_prompt(tokenizer: PreTrainedTokenizerBase, opening: str) -> list[Message]:
    """The system text that the template adds by itself: what stands in `opening` where a given one would stand."""
    try:
        with_system = _skeleton(tokenizer, ["system", "user"])
    except ValueError:  # no system message may be given to this template
        return []
    match with_system:
        case [before, "system", after, "user", _] if len(opening) > len(before) + len(after):
            if opening.startswith(before) and opening.endswith(after):
                return [Message("template", len(before), len(opening) - len(after))]
    return []
