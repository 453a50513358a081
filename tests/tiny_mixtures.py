"""Tiny random mixtures of experts of every family whose routers are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tiny
import torch
from tiny_study import CONTEXT_LENGTH, tiny_pair
from transformers import (
    DeepseekV2Config,
    DeepseekV3Config,
    GptOssConfig,
    GraniteMoeConfig,
    MixtralConfig,
    OlmoeConfig,
    PreTrainedConfig,
    Qwen2MoeConfig,
    Qwen3MoeConfig,
)

from specstudy.models.load import LanguageModel, Pair
from specstudy.models.routers import expert_layers

N_EXPERTS, N_CHOSEN, HIDDEN = 8, 3, 32


def sizes(vocabulary: int = tiny.VOCABULARY, **changes: Any) -> dict[str, Any]:
    """What all families name alike."""
    return {
        "vocab_size": vocabulary,
        "hidden_size": HIDDEN,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT_LENGTH,
        "num_experts_per_tok": N_CHOSEN,
        "initializer_range": 0.3,
        **changes,
    }


def families(vocabulary: int = tiny.VOCABULARY) -> dict[str, PreTrainedConfig]:
    """A configuration of each, and of ways to route that differ within a family."""
    common = sizes(vocabulary)
    latent: dict[str, Any] = {
        **common,
        "num_key_value_heads": 4,
        "kv_lora_rank": 8,
        "q_lora_rank": 8,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 8,
        "v_head_dim": 8,
        "n_routed_experts": N_EXPERTS,
        "n_shared_experts": 1,
        "moe_intermediate_size": 24,
        "first_k_dense_replace": 1,
        "routed_scaling_factor": 1.7,
        "n_group": 4,
        "topk_group": 2,
    }
    qwen2: dict[str, Any] = {**common, "num_experts": N_EXPERTS, "moe_intermediate_size": 24}
    return {
        "mixtral": MixtralConfig(**common, num_local_experts=N_EXPERTS),
        "qwen2_moe": Qwen2MoeConfig(**qwen2, shared_expert_intermediate_size=16),
        "qwen2_moe, dense first layer": Qwen2MoeConfig(**qwen2, mlp_only_layers=[0], norm_topk_prob=True),
        "qwen3_moe": Qwen3MoeConfig(**common, num_experts=N_EXPERTS, moe_intermediate_size=24, norm_topk_prob=True),
        "olmoe": OlmoeConfig(**common, num_experts=N_EXPERTS),
        "granitemoe": GraniteMoeConfig(**common, num_local_experts=N_EXPERTS),
        "deepseek_v2": DeepseekV2Config(**latent, topk_method="greedy"),
        "deepseek_v2, groups": DeepseekV2Config(**latent, topk_method="group_limited_greedy"),
        "deepseek_v3": DeepseekV3Config(**latent, norm_topk_prob=True),
        "gpt_oss": GptOssConfig(**common, num_local_experts=N_EXPERTS, head_dim=8, sliding_window=16),
    }


def random_mixture(config: PreTrainedConfig, vocabulary: int = tiny.VOCABULARY) -> LanguageModel:
    """A random model whose routers and their biases are far from zero, as some begin."""
    model = tiny.language_model(config, 0, vocabulary)
    generator = torch.Generator().manual_seed(1)
    for layer in expert_layers(model.module, "tiny"):
        for name in ("e_score_correction_bias", "bias", "weight"):
            values = getattr(layer.router, name, None)
            if values is not None:
                values.data = torch.randn(values.shape, generator=generator) * 0.4
    return model


def tiny_vocabulary() -> int:
    """Ids of the tiny study's tokenizer."""
    return tiny_pair().verifier.vocabulary


def mixture_pair(config: PreTrainedConfig) -> Pair:
    """The tiny study's pair with a mixture for its verifier; `config` has `tiny_vocabulary` ids."""
    pair = tiny_pair()
    return replace(pair, verifier=random_mixture(config, pair.verifier.vocabulary))
