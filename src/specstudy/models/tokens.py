"""Token texts for people and the tokenizer's own idea of where a word begins."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

SENTENCEPIECE_SPACE = "\u2581"
PARTIAL_CHARACTER = "\ufffd"


def token_text(tokenizer: PreTrainedTokenizerBase, token_id: int) -> str:
    """Text of one token, its leading space kept; a partial UTF-8 character shows as the replacement character."""
    token = tokenizer.convert_ids_to_tokens(token_id)
    if isinstance(token, str) and token.startswith(SENTENCEPIECE_SPACE):
        return token.replace(SENTENCEPIECE_SPACE, " ")
    return str(tokenizer.decode([token_id], skip_special_tokens=False, clean_up_tokenization_spaces=False))


def text_of(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> str:
    """The text of generated ids, special tokens left out."""
    return str(tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))


def word_starts(texts: Sequence[str]) -> list[bool]:
    """For the token texts of an answer: which begin a word.

    A token begins a word if it carries letters or digits and either brings its own leading space (how byte-level and
    SentencePiece tokenizers mark a word) or follows white space or the beginning of the answer. A partial character
    counts as a letter: in scripts that the vocabulary hardly knows, words begin with one.
    """
    starts = []
    before = " "
    for text in texts:
        after_space = text[:1].isspace() or before[-1:].isspace()
        starts.append(after_space and any(c.isalnum() or c == PARTIAL_CHARACTER for c in text))
        before = text or before
    return starts
