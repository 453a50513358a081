"""Contexts against what the models really take."""

from __future__ import annotations

from typing import Any

import pytest
import tiny
from transformers import (
    BloomConfig,
    CTRLConfig,
    GPT2Config,
    GPTBigCodeConfig,
    GPTNeoConfig,
    MptConfig,
    OPTConfig,
    PreTrainedConfig,
    RobertaConfig,
)

from specstudy.models.context import context_length

LONGEST = 24
_SIZES: dict[str, Any] = {"vocab_size": tiny.VOCABULARY, "hidden_size": 32}


@pytest.mark.parametrize(
    "config",
    [
        MptConfig(vocab_size=tiny.VOCABULARY, d_model=32, n_heads=4, n_layers=1, max_seq_len=LONGEST),
        GPT2Config(vocab_size=tiny.VOCABULARY, n_embd=32, n_layer=1, n_head=4, n_positions=LONGEST),
        GPTBigCodeConfig(vocab_size=tiny.VOCABULARY, n_embd=32, n_layer=1, n_head=4, n_positions=LONGEST),
        CTRLConfig(vocab_size=tiny.VOCABULARY, n_embd=32, dff=48, n_layer=1, n_head=4, n_positions=LONGEST),
        GPTNeoConfig(
            **_SIZES, num_layers=1, num_heads=4, attention_types=[[["global"], 1]], max_position_embeddings=LONGEST
        ),
        OPTConfig(
            **_SIZES,
            word_embed_proj_dim=32,
            ffn_dim=48,
            num_hidden_layers=1,
            num_attention_heads=4,
            max_position_embeddings=LONGEST,
        ),
        RobertaConfig(
            **_SIZES,
            intermediate_size=48,
            num_hidden_layers=1,
            num_attention_heads=4,
            is_decoder=True,
            pad_token_id=1,
            max_position_embeddings=LONGEST + 2,
        ),
    ],
    ids=lambda config: config.model_type,
)
def test_no_longer_text_is_taken(config: PreTrainedConfig) -> None:
    model = tiny.language_model(config)
    assert model.context_length == context_length(model.module) == LONGEST
    assert tiny.uncached_logits(model, [5] * LONGEST).isfinite().all()
    with pytest.raises((IndexError, RuntimeError)):
        tiny.uncached_logits(model, [5] * (LONGEST + 1))


def test_what_nothing_bounds_has_no_context() -> None:
    assert tiny.language_model(BloomConfig(**_SIZES, n_layer=1, n_head=4)).context_length is None
