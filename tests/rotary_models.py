"""Tiny models whose rotary frequencies depend on the length of the text."""

from __future__ import annotations

import tiny
from transformers import LlamaConfig, Phi3Config, PreTrainedConfig

from specstudy.models.load import LanguageModel

SHORT, LONG = [1.0] * 4, [1.0, 2.0, 6.0, 10.0]


def longrope_config(switch: int, **changes: object) -> PreTrainedConfig:
    """Phi-3 with other frequencies for every token of a text longer than `switch`."""
    rope = {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG, "rope_theta": 10000.0}
    common = {**tiny._COMMON, "original_max_position_embeddings": switch, "pad_token_id": None, **changes}
    return Phi3Config(**common, rope_parameters=rope)


def dynamic_config(**changes: object) -> PreTrainedConfig:
    """Llama with dynamic NTK scaling."""
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}
    return LlamaConfig(**{**tiny._COMMON, **changes}, rope_parameters=rope)


def longrope(seed: int, switch: int) -> LanguageModel:
    return tiny.language_model(longrope_config(switch), seed)
