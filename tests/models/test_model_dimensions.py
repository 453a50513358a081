"""Sizes counted from one token's pass: by hand, and against the weights themselves."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest
import tiny
import torch
from small_checkpoints import small_llama
from tiny_mixtures import families
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    Ernie4_5_MoeConfig,
    Gemma3nTextConfig,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3MoeConfig,
)

from specstudy.formulas import flops_per_token
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


N_EXPERTS, N_ACTIVE = 4, 2
# What families call their sizes; a configuration is given those that it has.
NAMES: dict[str, int] = {
    **GROUPED,
    **dict.fromkeys(("d_model", "n_embd", "decoder_embed_dim"), 32),
    **dict.fromkeys(("ffn_dim", "decoder_ffn_dim", "dff", "intermediate_size_mlp"), 48),
    **dict.fromkeys(("n_layer", "n_layers", "num_layers", "decoder_layers"), 3),
    **dict.fromkeys(("n_head", "n_heads", "num_heads", "attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), N_EXPERTS),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k"), N_ACTIVE),
    **dict.fromkeys(("n_positions", "max_seq_len"), 64),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 8),
    **{"head_dim": 16, "moe_intermediate_size": 24, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1},
    **{"rotary_dim": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}
FAMILIES = (
    *("afmoe", "apertus", "arcee", "aria_text", "bitnet", "bloom", "codegen", "cohere", "cohere2", "cohere2_moe"),
    *("ctrl", "deepseek_v2", "deepseek_v3", "ernie4_5", "ernie4_5_moe", "exaone4", "exaone_moe", "gemma", "gemma2"),
    *("gemma3_text", "glm", "glm4", "glm4_moe", "gpt2", "gpt_bigcode", "gpt_neox", "gpt_oss", "gptj", "granite"),
    *("granitemoe", "granitemoeshared", "helium", "hunyuan_v1_dense", "hunyuan_v1_moe", "hy_v3", "jetmoe", "llama"),
    *("llama4_text", "mistral", "mixtral", "mpt", "nemotron", "olmo", "olmo2", "olmoe", "opt", "persimmon", "phi"),
    *("phi3", "phimoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "seed_oss", "smollm3", "stablelm", "starcoder2"),
)


def small(model_type: str) -> PreTrainedConfig:
    """A configuration of this family with the sizes above."""
    family = CONFIG_MAPPING[model_type]
    default = family()
    latent = {"num_key_value_heads": 4, "head_dim": 8} if hasattr(default, "kv_lora_rank") else {}
    return family(**{name: value for name, value in {**NAMES, **latent}.items() if hasattr(default, name)})


def matrix_elements_a_token_passes(model: PreTrainedModel) -> Fraction:
    """Counted from the weights: all matrices but embeddings; of experts the active share."""
    count = Fraction(0)
    for name, weight in model.named_parameters():
        is_matrix = weight.ndim >= 2 and "bias" not in name and min(weight.shape) > 1
        if is_matrix and not re.search("embed|wte|wpe|\\bw\\.weight", name):
            is_expert = re.search(r"\.experts\.|\.(mlp|self_attention\.experts)\.(input|output)_linear", name)
            count += weight.numel() * (Fraction(N_ACTIVE, N_EXPERTS) if is_expert and weight.ndim == 3 else 1)
    output = model.get_output_embeddings().weight
    return count + (output.numel() if output is model.get_input_embeddings().weight else 0)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_against_the_weights(model_type: str) -> None:
    model = model_of(small(model_type))
    assert dimensions_of(model).matmul_parameters == matrix_elements_a_token_passes(model)


@pytest.mark.parametrize("family", families())
def test_mixtures_whose_routers_are_known(family: str) -> None:
    """Layers without experts, groups of experts; loaded or not, under the attention that runs."""
    config = families()[family]
    dimensions = tiny.language_model(config).dimensions
    assert dimensions == dimensions_of(model_of(config))
    assert (dimensions.n_experts, dimensions.n_active_experts) == (8, 3)
    assert dimensions.n_expert_layers == (2 if "dense" in family or family.startswith("deepseek") else 3)


def test_every_layer_has_its_own_sizes() -> None:
    """Gemma 3n: MLPs of 48 and 96; the last two layers attend to keys and values of others and make none."""
    config = Gemma3nTextConfig(
        **{**GROUPED, "intermediate_size": [48, 48, 96, 96], "num_hidden_layers": 4},
        head_dim=8,
        num_kv_shared_layers=2,
        layer_types=["sliding_attention", "full_attention"] * 2,
        sliding_window=8,
        altup_num_inputs=2,
        laurel_rank=4,
        hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=61,
        activation_sparsity_pattern=[0.0] * 4,
    )
    dimensions = dimensions_of(model_of(config))
    queries_and_output, keys_and_values = 2 * 32 * 32, 2 * 32 * 16
    # AltUp: a router of 32 * 2, products of 2 * 4 and 2 * 2. Laurel: 2 * 32 * 4. Inputs of the layer: 2 * 32 * 8.
    around = 2 * 32 * 2 + 2 * 4 + 2 * 2 + 2 * 32 * 4 + 2 * 32 * 8
    layers = 4 * (queries_and_output + around) + 2 * keys_and_values + 2 * 3 * 32 * 48 + 2 * 3 * 32 * 96
    # A projection into and one out of AltUp's second stream, inputs of all layers, the head.
    assert dimensions.matmul_parameters == layers + 2 * 32 * 32 + 32 * 4 * 8 + 32 * 61
    assert (dimensions.n_layers, dimensions.n_heads, dimensions.key_value_elements) == (4, 4, 2 * 2 * 16)
    assert dimensions.widest_product == 32 + 96


def test_the_head_and_the_shared_experts_of_ernie_by_hand() -> None:
    """A dense layer, and two with two of four experts of 24 and two shared ones; correction biases are added to scores
    and multiply nothing."""
    config = Ernie4_5_MoeConfig(
        **{**GROUPED, "vocab_size": 272}, moe_num_experts=4, moe_k=2, moe_intermediate_size=24, moe_layer_end_index=2
    )
    attention, experts, router = 2 * 32 * 32 + 2 * 32 * 16, 4 * 3 * 32 * 24, 32 * 4
    flops = 2 * (3 * attention + 3 * 32 * 48 + 2 * (experts + router) + 32 * 272)
    assert flops_per_token(dimensions_of(model_of(config))) == flops == 82_432


@pytest.mark.parametrize("implementation", ["eager", "grouped_mm", "batched_mm"])
def test_experts_count_alike_however_they_are_multiplied(implementation: str) -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(small("mixtral"), experts_implementation=implementation)
    assert dimensions_of(model).matmul_parameters == matrix_elements_a_token_passes(model)


def test_counting_leaves_a_model_as_it_was() -> None:
    model = tiny.language_model(families()["qwen2_moe"]).module
    before = {name: tensor.clone() for name, tensor in (*model.named_parameters(), *model.named_buffers())}
    dimensions_of(model)
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        assert torch.equal(tensor, before[name])


def test_the_output_projection_counts_with_its_padding() -> None:
    assert dimensions_of(model_of(small_llama(n_rows=300))).output_rows == 300
