"""What is structure and what is content, by span: never by what the user typed.

A token is content if it carries a character of what was written, even where it straddles the edge to the template (a
space before a word, a line break after it, merged into one token): its id depends on the user. White space alone does
not decide: a token with other characters belongs to whoever wrote those, so that a marker which swallows the white
space around it stays a marker. A special token that the user typed is content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specstudy.prompts.prompt import Position

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Kinds of tokens: those added to the vocabulary as wholes, white space, and everything else.
SPECIAL, SPACE, WORD = "special", "space", "word"
TEMPLATE = "template"


@dataclass(frozen=True)
class Message:
    """Characters [start, stop) of a rendered text; the role of a system text that nobody wrote is `template`."""

    role: str
    start: int
    stop: int


@dataclass(frozen=True)
class Layout:
    """A rendered text, the messages in it, and where the generation prompt begins."""

    text: str
    messages: tuple[Message, ...]
    generation_start: int


@dataclass(frozen=True)
class Token:
    """A token of a rendered text: characters [start, stop), less white space unless it is nothing else."""

    token_id: int
    start: int
    stop: int
    kind: str


def tokenize(text: str, tokenizer: PreTrainedTokenizerBase) -> list[Token]:
    """Tokens of a rendered text. A template writes its own BOS; raw text gets the one that the tokenizer adds."""
    is_raw = not tokenizer.chat_template
    encoded = tokenizer(text, add_special_tokens=is_raw, return_offsets_mapping=True)
    added = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    tokens = []
    for token_id, (start, stop) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
        characters = text[start:stop]
        kind = SPECIAL if token_id in added else WORD
        if core := characters.strip():
            start += characters.index(core)
            stop = start + len(core)
        elif characters or kind == WORD:
            kind = SPACE
        tokens.append(Token(token_id, start, stop, kind))
    while is_raw and len(tokens) > 1 and tokens[-1].kind == SPECIAL and tokens[-1].stop == 0:
        tokens.pop()  # an EOS with which the tokenizer closes every text
    return tokens


def labelled(tokens: Sequence[Token], layout: Layout, bos_id: int | None) -> list[Position]:
    """The position of every token, with its role and its part in the structure."""
    owners = [_owner(token, layout.messages) for token in tokens]
    positions: list[Position] = []
    where = "outside"
    n_generation = 0
    for index, (token, owner) in enumerate(zip(tokens, owners, strict=True)):
        part: str | None
        if owner is not None:
            part, where = ("system_prompt" if owner == TEMPLATE else None), "written"
        elif index == 0 and _is_bos(tokens, owners, bos_id):
            part = "bos"
        elif token.stop > layout.generation_start:
            part = f"generation_prompt+{n_generation}"
            n_generation += 1
        else:
            part, where = _PARTS[where, token.kind]
        positions.append(Position(token.token_id, owner or TEMPLATE, part or ("first" if index == 0 else None)))
    return positions


def _owner(token: Token, messages: Sequence[Message]) -> str | None:
    """The role of the message that a token belongs to, or None for one of the template's."""
    if token.start == token.stop:
        # Some tokenizers trim the span of white space to its end; that of an added BOS or EOS is [0, 0).
        return next((m.role for m in messages if m.start < token.stop <= m.stop and token.kind != SPECIAL), None)
    return next((m.role for m in messages if m.start < token.stop and token.start < m.stop), None)


def _is_bos(tokens: Sequence[Token], owners: Sequence[str | None], bos_id: int | None) -> bool:
    """Whether position 0 is a BOS; if a model's role marker is also its BOS, the template has it again further on."""
    ids = [token.token_id for token, owner in zip(tokens, owners, strict=True) if owner is None]
    return ids[0] == bos_id and ids.count(ids[0]) == 1


# What a token of the template is, by where it stands and its kind: (structural role, where the next one stands).
# `outside` of any message; after a role's special `marker`, or one spelled in ordinary `words`; after the role's
# `name`; in the `body` of a message, before any text; in a text there that is always the same (`prompt`); after what
# was `written` or injected; after an end marker spelled in ordinary words (`closed`).
_PARTS: dict[tuple[str, str], tuple[str, str]] = {
    ("outside", SPECIAL): ("role_marker", "marker"),
    ("outside", SPACE): ("end_newline", "outside"),
    ("outside", WORD): ("role_marker", "words"),
    ("marker", SPECIAL): ("role_marker", "marker"),
    ("marker", SPACE): ("role_newline", "body"),
    ("marker", WORD): ("role_name", "name"),
    ("words", SPECIAL): ("role_marker", "marker"),
    ("words", SPACE): ("role_newline", "words"),
    ("words", WORD): ("role_marker", "words"),
    ("name", SPECIAL): ("role_marker", "body"),
    ("name", SPACE): ("role_newline", "body"),
    ("name", WORD): ("role_name", "name"),
    ("body", SPECIAL): ("end_marker", "outside"),
    ("body", SPACE): ("role_newline", "body"),
    ("body", WORD): ("system_prompt", "prompt"),
    ("prompt", SPECIAL): ("end_marker", "outside"),
    ("prompt", SPACE): ("system_prompt", "prompt"),
    ("prompt", WORD): ("system_prompt", "prompt"),
    ("written", SPECIAL): ("end_marker", "outside"),
    ("written", SPACE): ("end_newline", "written"),
    ("written", WORD): ("end_marker", "closed"),
    ("closed", SPECIAL): ("end_marker", "outside"),
    ("closed", SPACE): ("end_newline", "outside"),
    ("closed", WORD): ("end_marker", "closed"),
}
