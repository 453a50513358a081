"""A prompt in its chat template: the text, and where in it what was written stands."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from specstudy.prompts.chat_template import DATE, ChatTemplate, Conversation
from specstudy.prompts.following import follow
from specstudy.prompts.prompt import Message, Prompt, RenderedPrompt
from specstudy.prompts.structure import TEMPLATE, Layout, Span, labelled, special_texts, tokenize

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BETWEEN_MESSAGES = "\n\n"


def render(prompt: Prompt, tokenizer: PreTrainedTokenizerBase, thinking: bool | None = None) -> RenderedPrompt:
    """Render with the chat template, or as raw text where the tokenizer has none; label every position by span.

    `thinking` is what a template's switch gets (None: its own default). Raises ValueError where the template refuses
    the prompt, or changes it in a way that cannot be followed.
    """
    notes: list[str] = []
    if tokenizer.chat_template:
        layout = _chat_layout(prompt, ChatTemplate(tokenizer, thinking), notes)
    else:
        layout = _raw_layout(prompt, notes)
    tokens = tokenize(layout.text, tokenizer)
    if not tokens:
        raise ValueError("the tokenizer makes no token of this prompt")
    positions = tuple(labelled(tokens, layout, tokenizer.bos_token_id))
    if any(p.structural_role == "system_prompt" for p in positions):
        notes.append("the template adds a system text of its own")
    generation_prompt = layout.text[layout.generation_start :]
    if generation_prompt.rfind("<think>") > generation_prompt.rfind("</think>"):
        notes.append("the generation prompt opens a thinking block")
    return RenderedPrompt(prompt, layout.text, positions, generation_prompt, tuple(dict.fromkeys(notes)))


def _raw_layout(prompt: Prompt, notes: list[str]) -> Layout:
    """The messages that are not empty, as they are, with empty lines between."""
    messages = [m for m in prompt.messages if m.content]
    if len(messages) > 1:
        notes.append("no chat template: messages follow each other with empty lines between")
    spans, text = [], ""
    for message in messages:
        text += BETWEEN_MESSAGES if text else ""
        spans.append(Span(message.role, len(text), len(text) + len(message.content)))
        text += message.content
    return Layout(text, tuple(spans), len(text))


def _chat_layout(prompt: Prompt, template: ChatTemplate, notes: list[str]) -> Layout:
    conversation, skeleton = _as_accepted(prompt.messages, template, notes)
    text = template.apply(conversation)
    try:
        shown = follow(skeleton, conversation.messages, text)
    except ValueError:
        if not conversation.messages[0].is_empty_system:
            raise
        skeleton = template.skeleton(conversation, leave_empty=True)
        shown = follow(skeleton, conversation.messages, text)
    notes += [s.change for s in shown if s.change]
    if template.may_ask_for_date:
        notes.append(f"where the template asks for today's date, it gets {DATE:%Y-%m-%d} on any day")
    spans = [Span(conversation.messages[s.number].role, s.start, s.stop) for s in shown]
    if prompt.system is None:
        spans += _injected_system_prompt(template, conversation, skeleton[0])
    spans.sort(key=lambda s: (s.start, s.stop))
    generation_start = _generation_start(text, template.apply(conversation, generation_prompt=False), spans, template)
    closing = text[max(s.stop for s in spans) : generation_start]
    spans += _additions_to_system_text(text, spans, closing, template)
    unclosed = _without_an_end(text, conversation, spans, closing if generation_start < len(text) else None, template)
    return Layout(text, tuple(spans), generation_start, frozenset(unclosed))


def _as_accepted(
    messages: tuple[Message, ...], template: ChatTemplate, notes: list[str]
) -> tuple[Conversation, list[str]]:
    """The conversation in the form that the template takes, with its skeleton.

    A system text that a template has no place for opens the first user message, an empty line between, as the templates
    of some families do by themselves; if that is refused too, the first refusal counts.
    """
    conversation = Conversation(messages)
    try:
        return conversation, template.skeleton(conversation)
    except ValueError:
        system, first = messages[0], messages[-1] if len(messages) == 1 else messages[1]
        if system.role != "system" or first.role != "user":
            raise
        is_empty = system.is_empty_system
        conversation = Conversation(messages[1:]) if is_empty else Conversation(messages, is_merged=True)
        try:
            skeleton = template.skeleton(conversation)
        except ValueError:
            skeleton = []
        if not skeleton:
            raise
    place = "the empty one is left out" if is_empty else "it opens the first user message"
    notes.append(f"the template has no place for a system text: {place}")
    return conversation, skeleton


def _injected_system_prompt(template: ChatTemplate, conversation: Conversation, opening: str) -> Iterator[Span]:
    """The system text that the template adds by itself: what stands in `opening` where a given one would stand."""
    try:
        with_system = template.skeleton(Conversation((Message("system", ""), *conversation.messages)))
    except ValueError:  # no system message may be given to this template
        return
    before, number, after = with_system[:3]
    stands_there = opening.startswith(before) and opening.endswith(after)
    if number == "0" and stands_there and len(opening) > len(before) + len(after):
        yield Span(TEMPLATE, len(before), len(opening) - len(after))


def _generation_start(text: str, without: str, spans: Sequence[Span], template: ChatTemplate) -> int:
    """Where the text stops to be the same without a generation prompt, and never inside what was written.

    Where it is the same to its end, a second special token after the last message opens the answer (the first closes
    the message): such a template always writes the generation prompt.
    """
    end = max(s.stop for s in spans)
    specials = list(special_texts(template.tokenizer).finditer(text, end))
    if text == without:
        return specials[1].start() if len(specials) > 1 else len(text)
    if text.startswith(without):
        return max(len(without), end)
    n_same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(text, without, strict=False)))
    return next((m.start() for m in specials if m.start() < n_same < m.end()), max(n_same, end))


def _additions_to_system_text(text: str, spans: Sequence[Span], closing: str, template: ChatTemplate) -> Iterator[Span]:
    """What the template writes between a system text and the special token that ends it: a list of tools, say."""
    for span, following in itertools.pairwise(spans):
        gap = text[span.stop : following.start]
        if span.role in ("system", TEMPLATE) and not _begins_with(gap, closing):
            special = special_texts(template.tokenizer).search(gap)
            if special and gap[: special.start()].strip():
                yield Span(TEMPLATE, span.stop, span.stop + special.start())


def _begins_with(gap: str, closing: str) -> bool:
    return bool(closing.strip()) and gap.lstrip().startswith(closing.strip())


def _without_an_end(
    text: str, conversation: Conversation, spans: Sequence[Span], closing: str | None, template: ChatTemplate
) -> Iterator[int]:
    """Ends of the messages that nothing closes, so that what follows opens the next one.

    `closing` is what follows the last message before the generation prompt (None: there is no such prompt).
    """
    if closing is not None and not closing.strip():
        yield from (s.stop for s in spans if s.role == "user")
    system = [(a, b) for a, b in itertools.pairwise(sorted(spans, key=lambda s: s.start)) if a.role == "system"]
    if system and not conversation.is_merged:
        first, following = system[0]
        try:
            opening = template.skeleton(Conversation(conversation.messages[1:]))[0]
        except ValueError:  # this template wants a system message
            return
        gap = text[first.stop : following.start]
        if gap.strip() and opening in (gap, f"{template.tokenizer.bos_token}{gap}"):
            yield first.stop
