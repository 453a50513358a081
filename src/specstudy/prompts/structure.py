"""What is structure and what is content, by span: never by what the user typed.

A token is content if it carries a character of what was written, even where it straddles the edge to the template (a
space before a word, a line break after it, merged into one token): its id depends on the user. White space alone does
not decide: a token with other characters belongs to whoever wrote those, so that a marker which swallows the white
space around it stays a marker. A special token that the user typed is content.
"""

from __future__ import annotations

import re
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
class Span:
    """A message at characters [start, stop) of a rendered text; a system text that nobody wrote is of the template."""

    role: str
    start: int
    stop: int


@dataclass(frozen=True)
class Layout:
    """A rendered text, the messages in it, and where the generation prompt begins.

    `unclosed` are the ends of messages that no marker closes: what follows opens the next one.
    """

    text: str
    spans: tuple[Span, ...]
    generation_start: int
    unclosed: frozenset[int] = frozenset()


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
    added = _added_ids(tokenizer)
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


def special_texts(tokenizer: PreTrainedTokenizerBase) -> re.Pattern[str]:
    """What finds tokens that were added to the vocabulary as wholes, white space excepted; it never matches nothing."""
    texts = sorted(map(str, tokenizer.convert_ids_to_tokens(sorted(_added_ids(tokenizer)))), key=len, reverse=True)
    return re.compile("|".join(re.escape(text) for text in texts if text.strip()) or "(?!)")


def _added_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    return {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}


def labelled(tokens: Sequence[Token], layout: Layout, bos_id: int | None) -> list[Position]:
    """The position of every token, with its role and its part in the structure."""
    owners = [_owner(token, layout.spans) for token in tokens]
    bos = _bos(tokens, owners, bos_id)
    positions: list[Position] = []
    where = "outside"
    n_generation = 0
    for index, (token, owner) in enumerate(zip(tokens, owners, strict=True)):
        part: str | None
        if owner is not None:
            part = "system_prompt" if owner.role == TEMPLATE else None
            where = "outside" if owner.stop in layout.unclosed else "written"
        elif token.token_id == bos:
            part = "bos"
        elif token.stop > layout.generation_start:
            part = f"generation_prompt+{n_generation}"
            n_generation += 1
        else:
            part, where = _PARTS[where, token.kind]
        role = owner.role if owner else TEMPLATE
        positions.append(Position(token.token_id, role, part or ("first" if index == 0 else None)))
    return positions


def _owner(token: Token, spans: Sequence[Span]) -> Span | None:
    """The message that a token belongs to, or None for one of the template's."""
    if token.start == token.stop:
        # Some tokenizers trim the span of white space to its end; that of an added BOS or EOS is [0, 0).
        return next((s for s in spans if s.start < token.stop <= s.stop and token.kind != SPECIAL), None)
    return next((s for s in spans if s.start < token.stop and token.start < s.stop), None)


def _bos(tokens: Sequence[Token], owners: Sequence[Span | None], bos_id: int | None) -> int | None:
    """The id of a BOS that opens the text (and, in some families, every user message again).

    A model's role marker may also be its BOS: then the template has it more often than there are user messages.
    """
    ids = [token.token_id for token, owner in zip(tokens, owners, strict=True) if owner is None]
    if owners[0] is not None or ids[0] != bos_id:
        return None
    n_users = len({owner for owner in owners if owner and owner.role == "user"})
    return bos_id if ids.count(ids[0]) <= max(1, n_users) else None


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
