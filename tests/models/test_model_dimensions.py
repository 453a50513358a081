"""FLOPs from configurations: by hand, and against the weights themselves."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch
from small_checkpoints import small_llama
from tiny_mixtures import families
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    FalconConfig,
    GemmaConfig,
    GPT2Config,
    GptOssConfig,
    LlamaConfig,
    MixtralConfig,
    OPTConfig,
    PhiConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    Starcoder2Config,
)

from specstudy.formulas import Dimensions, flops_per_token
from specstudy.models.dimensions import dimensions_of

SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
GROUPED: dict[str, Any] = {**SIZES, "num_key_value_heads": 2}
EXPERTS: dict[str, Any] = {**GROUPED, "num_experts_per_tok": 2}


def model_of(config: PreTrainedConfig) -> PreTrainedModel:
    """The architecture with weights that take no memory."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize(
    ("config", "flops"),
    [
        # A layer: q and o 32 * 32, k and v 32 * 16, three matrices 32 * 48. The projection: 32 * 61, tied or not.
        (LlamaConfig(**GROUPED, tie_word_embeddings=True), 2 * (3 * (2048 + 1024 + 4608) + 1952)),
        (LlamaConfig(**GROUPED, tie_word_embeddings=False), 2 * (3 * (2048 + 1024 + 4608) + 1952)),
        # A head size of its own: q and o 32 * 64, k and v 32 * 32.
        (GemmaConfig(**GROUPED, head_dim=16), 2 * (3 * (4096 + 2048 + 4608) + 1952)),
        (Qwen3Config(**GROUPED, head_dim=16), 2 * (3 * (4096 + 2048 + 4608) + 1952)),
        # n_inner not given: two matrices of 32 * 128.
        (GPT2Config(vocab_size=61, n_embd=32, n_layer=3, n_head=4), 2 * (3 * (4096 + 8192) + 1952)),
        (GPT2Config(vocab_size=61, n_embd=32, n_layer=3, n_head=4, n_inner=40), 2 * (3 * (4096 + 2560) + 1952)),
        # Two of four experts of three matrices, and a router of 32 * 4.
        (MixtralConfig(**EXPERTS, num_local_experts=4), 2 * (3 * (2048 + 1024 + 2 * 4608 + 128) + 1952)),
        (
            Qwen3MoeConfig(**EXPERTS, head_dim=16, num_experts=4, moe_intermediate_size=24),
            2 * (3 * (4096 + 2048 + 2 * 2304 + 128) + 1952),
        ),
    ],
    ids=["llama", "untied", "gemma", "qwen3", "gpt2", "gpt2 n_inner", "mixtral", "qwen3 moe"],
)
def test_by_hand(config: PreTrainedConfig, flops: int) -> None:
    assert flops_per_token(dimensions_of(model_of(config))) == flops


def matrix_elements_a_token_passes(model: PreTrainedModel, dimensions: Dimensions) -> float:
    """Counted from the weights: all matrices but embeddings; of experts the active share."""
    count = Fraction(0)
    for name, weight in model.named_parameters():
        is_matrix = weight.ndim >= 2 and "bias" not in name and "shared_expert_gate" not in name
        if not is_matrix or any(part in name for part in ("embed", "wte", "wpe")):
            continue
        is_expert = ".experts." in name
        share = Fraction(dimensions.n_active_experts, dimensions.n_experts) if is_expert else 1
        count += weight.numel() * share
    output = model.get_output_embeddings().weight
    return float(count) + (output.numel() if output is model.get_input_embeddings().weight else 0)


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**GROUPED),
        GPT2Config(vocab_size=61, n_embd=32, n_layer=3, n_head=4),
        MixtralConfig(**EXPERTS, num_local_experts=4),
        Qwen2MoeConfig(**EXPERTS, num_experts=4, moe_intermediate_size=24, shared_expert_intermediate_size=40),
        GptOssConfig(**EXPERTS, head_dim=16, num_local_experts=4),
        *families().values(),
        FalconConfig(vocab_size=61, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, multi_query=True),
        OPTConfig(vocab_size=61, hidden_size=32, ffn_dim=48, num_hidden_layers=3, num_attention_heads=4),
        BloomConfig(vocab_size=61, hidden_size=32, n_layer=3, n_head=4),
        PhiConfig(**SIZES),
        Starcoder2Config(**GROUPED),
    ],
    ids=lambda config: config.model_type,
)
def test_against_the_weights(config: PreTrainedConfig) -> None:
    model = model_of(config)
    dimensions = dimensions_of(model)
    assert flops_per_token(dimensions) == 2 * matrix_elements_a_token_passes(model, dimensions)


def test_the_output_projection_counts_with_its_padding() -> None:
    assert dimensions_of(model_of(small_llama(n_rows=300))).output_rows == 300
