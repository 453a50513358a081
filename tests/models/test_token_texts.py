"""Texts of tokens, for people, and where words begin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tokenizers import CHATML_MARKS, byte_level_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from specstudy.models.embedded import ensure_embedded_verifier
from specstudy.models.tokens import text_of, token_text, word_starts

# The embedded vocabulary lacks the bytes of six control characters and of planes 4 to 11, which hold nothing yet.
LETTERS = st.sampled_from("\n\t") | st.characters(max_codepoint=0x3FFFF, exclude_categories=["Cs", "Cc"])
BYTE_LEVEL = byte_level_tokenizer(special=CHATML_MARKS, merges=[("Ġ", "h"), ("Ġh", "i"), ("Ġ", ".")])


@pytest.fixture(scope="module")
def embedded() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(ensure_embedded_verifier())


def sentencepiece_tokenizer() -> PreTrainedTokenizerFast:
    words = ["<unk>", "▁the", "▁", "re", "▁cat", "▁▁▁", "<0xE2>", "<0x82>", "<0xAC>", "."]
    tokenizer = Tokenizer(models.BPE({w: i for i, w in enumerate(words)}, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


class TestTokenText:
    @pytest.mark.parametrize("token", [" hi", " .", "h", " ", "\n", "<|im_end|>"])
    def test_byte_level_tokens_keep_their_space(self, token: str) -> None:
        [token_id] = BYTE_LEVEL(token)["input_ids"]
        assert token_text(BYTE_LEVEL, token_id) == token

    def test_part_of_a_character_is_shown_as_one(self) -> None:
        ids = BYTE_LEVEL("€")["input_ids"]
        assert [token_text(BYTE_LEVEL, i) for i in ids] == ["\ufffd"] * 3
        assert text_of(BYTE_LEVEL, ids) == "€"

    def test_sentencepiece_tokens_keep_their_space(self) -> None:
        tokenizer = sentencepiece_tokenizer()
        shown = [token_text(tokenizer, i) for i in range(1, len(tokenizer))]
        assert shown == [" the", " ", "re", " cat", "   ", "\ufffd", "\ufffd", "\ufffd", "."]

    def test_a_space_before_punctuation_is_not_cleaned_up(self) -> None:
        tidy = byte_level_tokenizer(merges=[("Ġ", ".")])
        tidy.clean_up_tokenization_spaces = True
        [token_id] = tidy(" .")["input_ids"]
        assert token_text(tidy, token_id) == " ."
        assert text_of(tidy, tidy("a . b")["input_ids"]) == "a . b"

    def test_answers_leave_special_tokens_out(self) -> None:
        assert text_of(BYTE_LEVEL, BYTE_LEVEL("say hi<|im_end|>")["input_ids"]) == "say hi"

    def test_of_the_embedded_model(self, embedded: PreTrainedTokenizerBase) -> None:
        ids = embedded("The cat sat.\n Café 日本")["input_ids"]
        texts = [token_text(embedded, i) for i in ids]
        assert texts[:5] == ["The", " cat", " sat", ".", "\n"]
        assert "".join(texts).startswith("The cat sat.\n Café")

    @given(text=st.text(LETTERS))
    def test_joined_ids_give_the_text_back(self, embedded: PreTrainedTokenizerBase, text: str) -> None:
        assert text_of(embedded, embedded(text)["input_ids"]) == _without_markers(embedded, text)


def _without_markers(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    for marker in tokenizer.all_special_tokens:
        text = text.replace(marker, "")
    return text


class TestWordStarts:
    @pytest.mark.parametrize(
        ("texts", "starts"),
        [
            (["The", " cat", "s", " sat", "."], [True, True, False, True, False]),
            ([" The", " cat"], [True, True]),
            (["un", "believ", "able"], [True, False, False]),
            (["a", "\n", "b", "\n\n", " c"], [True, False, True, False, True]),
            (["x", " ", "y"], [True, False, True]),
            (["(", "a", ")", " -", " 3", "rd"], [False, False, False, False, True, False]),
            (["", "a", "", "b"], [False, True, False, False]),
            ([" \ufffd", "\ufffd", "\ufffd", " x"], [True, False, False, True]),
            (["日本", "語"], [True, False]),
            ([" **", "bold", "**"], [False, False, False]),
            ([], []),
        ],
    )
    def test_by_hand(self, texts: list[str], starts: list[bool]) -> None:
        assert word_starts(texts) == starts

    @given(st.lists(st.text(alphabet="ab. \n\ufffd")))
    def test_one_flag_a_token_and_never_inside_a_word(self, texts: list[str]) -> None:
        starts = word_starts(texts)
        assert len(starts) == len(texts)
        before = " "
        for text, start in zip(texts, starts, strict=True):
            if start:
                assert text[0].isspace() or before[-1].isspace()
            before = text or before

    def test_words_of_the_embedded_model(self, embedded: PreTrainedTokenizerBase) -> None:
        text = "Photosynthesis turns sunlight into sugar, quickly.\n\nDeinonychus ran."
        texts = [token_text(embedded, i) for i in embedded(text)["input_ids"]]
        assert sum(word_starts(texts)) == len(text.split())
