"""One tiny random model for each kind of attention, and the full maps of plain transformers to compare with."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import tiny
import torch
from numpy.typing import NDArray
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    FalconConfig,
    GPTNeoConfig,
    GptOssConfig,
    Llama4TextConfig,
    MptConfig,
    PreTrainedConfig,
)

from specstudy.models.load import LanguageModel

SLIDING_WINDOW = 8
_FEW: dict[str, Any] = {
    **tiny._COMMON,
    "head_dim": 8,
    "sliding_window": SLIDING_WINDOW,
}
_OLD: dict[str, Any] = {"vocab_size": tiny.VOCABULARY, "hidden_size": 32, "initializer_range": 0.3}
_FALCON: dict[str, Any] = {**_OLD, "num_hidden_layers": 3, "num_attention_heads": 4}


def by_function() -> dict[str, PreTrainedConfig]:
    """Kinds of attention that transformers dispatches to a registered function."""
    return {
        **tiny.configurations(),
        "sink parameter": GptOssConfig(
            **_FEW,
            num_local_experts=4,
            num_experts_per_tok=2,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ),
        "chunked": Llama4TextConfig(
            **tiny._COMMON, head_dim=8, attention_chunk_size=8, num_local_experts=2, intermediate_size_mlp=48
        ),
    }


def by_maps() -> dict[str, PreTrainedConfig]:
    """Architectures that call no registered function."""
    return {
        "bloom": BloomConfig(**_OLD, n_layer=3, n_head=4),
        "falcon": FalconConfig(**_FALCON),
        "falcon, grouped": FalconConfig(**_FALCON, num_kv_heads=2, new_decoder_architecture=True),
        "gpt neo, local layers": GPTNeoConfig(
            **_OLD,
            num_layers=4,
            num_heads=4,
            attention_types=[[["global", "local"], 2]],
            window_size=SLIDING_WINDOW,
            max_position_embeddings=256,
        ),
        "mpt": MptConfig(
            vocab_size=tiny.VOCABULARY, d_model=32, n_heads=4, n_layers=3, max_seq_len=256, initializer_range=0.3
        ),
    }


def falcon_with_alibi() -> PreTrainedConfig:
    return FalconConfig(**_FALCON, alibi=True)


def language_model(config: PreTrainedConfig, seed: int = 1) -> LanguageModel:
    """A random model, sink parameters included: transformers leaves them at one value."""
    model = tiny.language_model(copy.deepcopy(config), seed)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.module.named_parameters():
        if name.endswith("sinks"):
            parameter.copy_(2.0 + torch.randn(parameter.shape, generator=generator))
    return model


def eager_maps(model: LanguageModel, ids: list[int]) -> NDArray[np.float64]:
    """[layers, heads, queries, keys] of plain transformers."""
    config = type(model.module.config).from_dict(model.module.config.to_dict())
    twin = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    twin.load_state_dict(model.module.state_dict())
    twin.to(model.dtype)
    with torch.no_grad():
        maps = twin(input_ids=torch.tensor([ids]), output_attentions=True).attentions
    return torch.stack([layer[0] for layer in maps]).double().numpy()
