"""The tokenizer that a GGUF file states: its own ids, its own special tokens, its own way to cut a text."""

from __future__ import annotations

from collections import Counter
from typing import Any

from gguf import TokenType
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS
from transformers.tokenization_utils_base import generate_merges

from specstudy.models.gguf_header import GgufHeader

PREFIX = "tokenizer.ggml."
SPACE = "\u2581"
# How a text is cut before merging, by `tokenizer.ggml.pre`: as GPT-2 does, the same with each digit alone, or by an
# expression that transformers knows and that is what llama.cpp does with this name.
AS_GPT2 = {"gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "a.x-4.0", "mellum"}
DIGITS_ALONE = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}
BY_EXPRESSION = {
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan"), "qwen2"),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "dbrx", "smaug-bpe"), "llama-bpe"),
    **{name: name for name in ("tekken", "gpt-4o")},
}
# These look a whole piece up before they merge, and begin a text with BOS unless told otherwise.
WHOLE_PIECES_FIRST = {"llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "tekken"}
# Control tokens at which llama.cpp ends a text whatever the file states.
ENDS = {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<eos>"}
ENDS |= {"<|end_of_text|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<end_of_utterance>", "<｜end▁of▁sentence｜>"}


def tokenizer_of(header: GgufHeader) -> PreTrainedTokenizerFast:
    """The tokenizer. Raises ValueError for one whose way to cut a text is not known, or whose ids are not its own."""
    kind = header.required(f"{PREFIX}model")
    if kind not in ("gpt2", "llama"):
        raise ValueError(f"{PREFIX}model is {kind!r}, and only 'gpt2' or 'llama' can be read")
    tokens: list[str] = header.required(f"{PREFIX}tokens")
    if repeated := [token for token, n in Counter(tokens).items() if n > 1]:
        raise ValueError(f"{PREFIX}tokens has {repeated[0]!r} more than once")
    header.expect(f"{PREFIX}add_eos_token", False)
    header.expect(f"{PREFIX}add_sep_token", False)
    backend, adds_bos = (_byte_level if kind == "gpt2" else _sentencepiece)(header, tokens)
    _add_special(header, backend, tokens)
    adds_bos = header.get(f"{PREFIX}add_bos_token", adds_bos)
    named = {name: tokens[i] for name, i in _special_ids(header, tokens).items()}
    if adds_bos and "bos_token" not in named:
        raise ValueError(f"it does not state {PREFIX}bos_token_id, and its texts begin with it")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, add_bos_token=adds_bos, clean_up_tokenization_spaces=False, **named
    )
    tokenizer.chat_template = header.get("tokenizer.chat_template")
    ids = tokenizer.get_vocab()
    if moved := [i for i, token in enumerate(tokens) if ids.get(token) != i]:
        raise ValueError(f"its token {moved[0]}, {tokens[moved[0]]!r}, does not keep its id")
    return tokenizer


def special_ids(header: GgufHeader) -> dict[str, int | list[int]]:
    """BOS, padding, unknown, and every id that ends a text: of the text, a turn, a message. Raises ValueError."""
    tokens = header.required(f"{PREFIX}tokens")
    found = _special_ids(header, tokens)
    stated = [found.get("eos_token"), *(_id(header, tokens, f"{name}_token_id") for name in ("eot", "eom"))]
    known = [i for i, kind in enumerate(_kinds(header, tokens)) if kind == TokenType.CONTROL and tokens[i] in ENDS]
    ends = sorted({i for i in [*stated, *known] if i is not None})
    ids: dict[str, Any] = {f"{name}_id": found.get(name) for name in ("bos_token", "pad_token", "unk_token")}
    return ids | {"eos_token_id": ends if len(ends) > 1 else next(iter(ends), None)}


def _special_ids(header: GgufHeader, tokens: list[str]) -> dict[str, int]:
    # What llama.cpp takes for a SentencePiece vocabulary that does not state them.
    usual = {"bos": 1, "eos": 2, "unknown": 0} if header.get(f"{PREFIX}model") == "llama" else {}
    names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
    ids = {name: _id(header, tokens, f"{key}_token_id", usual.get(key)) for key, name in names.items()}
    return {name: i for name, i in ids.items() if i is not None}


def _id(header: GgufHeader, tokens: list[str], key: str, usual: int | None = None) -> int | None:
    token_id: int | None = header.get(PREFIX + key, usual)
    if token_id is not None and token_id not in range(len(tokens)):
        raise ValueError(f"{PREFIX}{key} is {token_id!r}, and there are {len(tokens)} tokens")
    return token_id


def _kinds(header: GgufHeader, tokens: list[str]) -> list[int]:
    kinds: list[int] = header.get(f"{PREFIX}token_type", [TokenType.NORMAL] * len(tokens))
    if len(kinds) != len(tokens):
        raise ValueError(f"{PREFIX}token_type has {len(kinds)} entries for {len(tokens)} tokens")
    return kinds


def _byte_level(header: GgufHeader, tokens: list[str]) -> tuple[Tokenizer, bool]:
    """Merges of bytes, and whether BOS begins a text unless told otherwise."""
    header.get(f"{PREFIX}add_space_prefix")  # neither this nor scores are used with merges
    header.get(f"{PREFIX}scores")
    pre = header.get(f"{PREFIX}pre")
    merges = [_pair(merge) for merge in header.required(f"{PREFIX}merges")]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=pre in WHOLE_PIECES_FIRST))
    if pre in AS_GPT2:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif pre in DIGITS_ALONE:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    elif pre in BY_EXPRESSION:
        expression = Regex(GGUF_PRE_TOKENIZER_SPLITS[BY_EXPRESSION[pre]])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(expression, behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    else:
        said = "not stated" if pre is None else repr(pre)
        raise ValueError(f"{PREFIX}pre is {said}: how it cuts a text before merging is not known here")
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, pre in WHOLE_PIECES_FIRST


def _pair(merge: str) -> tuple[str, str]:
    """A merge is two tokens with a space between; the first may begin with one."""
    if (cut := merge.find(" ", 1)) < 0:
        raise ValueError(f"{PREFIX}merges has {merge!r}, and has to have two tokens with a space between")
    return merge[:cut], merge[cut + 1 :]


def _sentencepiece(header: GgufHeader, tokens: list[str]) -> tuple[Tokenizer, bool]:
    """Merges are not in the file: whatever two neighbours make a token is merged, the highest score first."""
    header.get(f"{PREFIX}pre")  # nothing is cut before merging
    header.expect(f"{PREFIX}remove_extra_whitespaces", False)
    has_prefix = header.get(f"{PREFIX}add_space_prefix", True)
    scores = header.required(f"{PREFIX}scores")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=generate_merges(vocabulary, dict(zip(tokens, scores, strict=True))),
            unk_token=tokens[_special_ids(header, tokens)["unk_token"]],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    spelled = [normalizers.Prepend(SPACE)] if has_prefix else []
    tokenizer.normalizer = normalizers.Sequence([*spelled, normalizers.Replace(" ", SPACE)])
    stripped = [decoders.Strip(" ", 1, 0)] if has_prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *stripped]
    )
    return tokenizer, True


def _add_special(header: GgufHeader, tokenizer: Tokenizer, tokens: list[str]) -> None:
    """Control tokens, and those that somebody added, are cut out of a text before anything else."""
    added = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)
    # Only by its name does llama.cpp know the family whose special tokens swallow the white space behind them.
    name = str(header.get("general.name", "")).lower()
    swallows = "phi-3" in name or "phi3" in name
    tokenizer.add_tokens(
        [
            AddedToken(
                token,
                special=kind != TokenType.USER_DEFINED,
                normalized=False,
                rstrip=swallows and token not in ("<unk>", "<s>", "<|endoftext|>"),
            )
            for token, kind in zip(tokens, _kinds(header, tokens), strict=True)
            if kind in added
        ]
    )
