"""The tokenizer of a GGUF file has the file's own ids and cuts a text as the file says."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from gguf_files import N_TOKENS, TOKENIZER, TOKENS, write
from transformers import PreTrainedTokenizerFast

from specstudy.models.gguf_header import GgufHeader
from specstudy.models.gguf_tokenizer import special_ids, tokenizer_of

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
SAMPLES = [
    "The quick brown fox, 1234 times.",
    "  two spaces, then\n\n    a tab\tand ñ or 漢字 or 🙂 ",
    "x",
    "",
    "don't   stop\n",
]


def header(path: Path, **changes: Any) -> GgufHeader:
    """The small tokenizer of other tests, changed; None takes a key away."""
    named = {"general.name": changes.pop("name", None)}
    changed = TOKENIZER | named | {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    keys = {key: value for key, value in changed.items() if value is not None}
    return GgufHeader(write(path / "tokenizer.gguf", "llama", keys, {}))


def with_tokens(*added: tuple[str, int]) -> dict[str, Any]:
    """Tokens more, each with its kind."""
    kinds = TOKENIZER["tokenizer.ggml.token_type"] + [kind for _, kind in added]
    return {"tokens": TOKENS + [token for token, _ in added], "token_type": kinds}


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["I", "'ll", " take", " 1234", "\n\n ", " 5", "."]),
        ("smollm", ["I", "'ll", " take", " ", "1", "2", "3", "4", "\n\n  ", "5", "."]),
        ("qwen2", ["I", "'ll", " take", " ", "1", "2", "3", "4", "\n\n", " ", " ", "5", "."]),
        ("llama-bpe", ["I", "'ll", " take", " ", "123", "4", "\n\n", " ", " ", "5", "."]),
    ],
)
def test_a_text_is_cut_as_the_file_says(tmp_path: Path, pre: str, pieces: list[str]) -> None:
    tokenizer = tokenizer_of(header(tmp_path, pre=pre))
    text = "I'll take 1234\n\n  5."
    cut = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)
    assert [text[start:stop] for _, (start, stop) in cut] == pieces


def test_whole_pieces_come_before_merges_where_the_vocabulary_was_made_so(tmp_path: Path) -> None:
    added = with_tokens(("then", NORMAL))
    assert tokenizer_of(header(tmp_path, pre="llama-bpe", add_bos_token=False, **added)).tokenize("then") == ["then"]
    assert tokenizer_of(header(tmp_path, pre="qwen2", **added)).tokenize("then") == ["th", "e", "n"]


def test_control_tokens_outside_the_byte_alphabet_keep_their_ids(tmp_path: Path) -> None:
    marks = ["<｜begin▁of▁sentence｜>", "<｜User｜>", "<think>"]
    added = with_tokens(*zip(marks, (CONTROL, CONTROL, USER_DEFINED), strict=True))
    tokenizer = tokenizer_of(header(tmp_path, bos_token_id=N_TOKENS, **added))
    text = "<｜begin▁of▁sentence｜><｜User｜>the ñ<think>"
    encoded = tokenizer(text, return_offsets_mapping=True)
    first, second, *word, last = encoded["input_ids"]
    assert [first, second, last] == [N_TOKENS, N_TOKENS + 1, N_TOKENS + 2]
    assert tokenizer.convert_ids_to_tokens(word) == ["th", "e", "Ġ", "Ã", "±"]
    assert encoded["offset_mapping"][1] == (len(marks[0]), len(marks[0] + marks[1]))
    assert tokenizer.decode(encoded["input_ids"]) == text
    assert tokenizer.bos_token == marks[0]
    assert len(tokenizer) == N_TOKENS + 3


@pytest.mark.parametrize(
    ("pre", "stated", "begins"),
    [("qwen2", None, False), ("qwen2", True, True), ("llama-bpe", None, True), ("llama-bpe", False, False)],
)
def test_bos_begins_a_text_where_the_file_or_its_kind_says_so(
    tmp_path: Path, pre: str, stated: bool | None, begins: bool
) -> None:
    tokenizer = tokenizer_of(header(tmp_path, pre=pre, add_bos_token=stated, bos_token_id=257))
    assert tokenizer("a")["input_ids"] == [257] * begins + [TOKENS.index("a")]


@pytest.mark.parametrize(
    ("changes", "ends"),
    [
        ({}, 258),
        ({"eos_token_id": 5}, [5, 258]),  # <|im_end|>, said or not
        ({"eos_token_id": 5, "eot_token_id": 6, "eom_token_id": 7}, [5, 6, 7, 258]),
        ({"eos_token_id": None}, 258),
        (with_tokens(("<|eom_id|>", CONTROL)), [258, N_TOKENS]),
        (with_tokens(("<|eot_id|>", NORMAL)), 258),
    ],
)
def test_every_id_that_ends_a_text(tmp_path: Path, changes: dict[str, Any], ends: int | list[int]) -> None:
    assert special_ids(header(tmp_path, **changes))["eos_token_id"] == ends


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pre": None}, "tokenizer.ggml.pre is not stated"),
        ({"pre": "of-my-own"}, "tokenizer.ggml.pre is 'of-my-own'"),
        ({"model": "t5"}, "tokenizer.ggml.model is 't5'"),
        ({"merges": None}, "it does not state tokenizer.ggml.merges"),
        ({"tokens": None}, "it does not state tokenizer.ggml.tokens"),
        ({"tokens": [*TOKENS[:-1], "a"]}, "tokenizer.ggml.tokens has 'a' more than once"),
        ({"token_type": [1, 1]}, "tokenizer.ggml.token_type has 2 entries for 259 tokens"),
        ({"eos_token_id": 259}, "tokenizer.ggml.eos_token_id is 259, and there are 259 tokens"),
        ({"eos_token_id": "</s>"}, "tokenizer.ggml.eos_token_id is '</s>', and there are 259 tokens"),
        ({"merges": ["th"]}, "tokenizer.ggml.merges has 'th', and has to have two tokens"),
        ({"add_eos_token": True}, "tokenizer.ggml.add_eos_token is True"),
        ({"add_bos_token": True}, "it does not state tokenizer.ggml.bos_token_id"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        tokenizer_of(header(tmp_path, **changes))


@pytest.fixture(scope="module")
def trained() -> sentencepiece.SentencePieceProcessor:
    """A SentencePiece model of Llama's kind: merges, spaces as marks, bytes for what is in no token."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([SAMPLES[0]] * 20 + [" ".join(map(str, range(60))), "the brown fox stops: don't"]),
        model_writer=model,
        model_type="bpe",
        vocab_size=330,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        character_coverage=0.99,
        user_defined_symbols=["<turn>"],
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def spelled(model: sentencepiece.SentencePieceProcessor, path: Path, **changes: Any) -> PreTrainedTokenizerFast:
    ids = range(model.get_piece_size())
    kinds = [
        BYTE if model.is_byte(i) else UNKNOWN if model.is_unknown(i) else CONTROL if model.is_control(i) else NORMAL
        for i in ids
    ]
    pieces = [model.id_to_piece(i) for i in ids]
    kinds[pieces.index("<turn>")] = USER_DEFINED
    scores = [float(model.get_score(i)) for i in ids]
    kept = {"model": "llama", "pre": "default", "merges": None, "eos_token_id": 2, "bos_token_id": 1, **changes}
    return tokenizer_of(header(path, tokens=pieces, token_type=kinds, scores=scores, **kept))


def test_a_sentencepiece_vocabulary_gives_the_ids_of_sentencepiece(
    trained: sentencepiece.SentencePieceProcessor, tmp_path: Path
) -> None:
    tokenizer = spelled(trained, tmp_path)
    for text in SAMPLES:
        ids = tokenizer(text)["input_ids"]
        assert ids == trained.encode(text), text
        assert tokenizer.decode(ids) == text


def test_a_text_behind_a_special_token_begins_as_one_at_the_start(
    trained: sentencepiece.SentencePieceProcessor, tmp_path: Path
) -> None:
    """What llama.cpp does, and what the first Llama's own tokenizer did."""
    mark = trained.piece_to_id("<turn>")
    tokenizer = spelled(trained, tmp_path)
    assert tokenizer("fox<turn>fox")["input_ids"] == [*trained.encode("fox"), mark, *trained.encode("fox")]


def test_no_prefix_where_the_file_says_so(trained: sentencepiece.SentencePieceProcessor, tmp_path: Path) -> None:
    tokenizer = spelled(trained, tmp_path, add_space_prefix=False)
    assert tokenizer.tokenize(" fox") == trained.encode("fox", out_type=str)
    assert tokenizer.tokenize("fox")[0][0] == "f"
    assert tokenizer.decode(tokenizer("fox  fox")["input_ids"]) == "fox  fox"


def test_bos_begins_a_text_of_a_sentencepiece_vocabulary_unless_told_otherwise(
    trained: sentencepiece.SentencePieceProcessor, tmp_path: Path
) -> None:
    assert spelled(trained, tmp_path, add_bos_token=None)("x")["input_ids"][0] == 1
    assert spelled(trained, tmp_path)("x")["input_ids"][0] != 1


def test_phi3s_special_tokens_swallow_the_white_space_behind_them(
    trained: sentencepiece.SentencePieceProcessor, tmp_path: Path
) -> None:
    mark = trained.piece_to_id("<turn>")
    swallowed, kept = [mark, *trained.encode("fox")], [mark, *trained.encode("\nfox")]
    assert spelled(trained, tmp_path, name="Phi-3 mini")("<turn>\nfox")["input_ids"] == swallowed
    assert spelled(trained, tmp_path, name="Another")("<turn>\nfox")["input_ids"] == kept
