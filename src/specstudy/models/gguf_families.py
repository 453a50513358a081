"""Which architectures of GGUF files are read, and what each key and tensor of theirs is in transformers.

Only what a test holds: the logits of a file equal those of the same weights in a directory, all keys at unusual values.
What a file leaves out is what llama.cpp takes then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedConfig

from specstudy.models.gguf_header import GgufHeader
from specstudy.models.gguf_rope import rope_parameters

Array = NDArray[np.float32]
Fields = dict[str, Any]
Restore = Callable[[str, Array, PreTrainedConfig], Array]

GEMMA_27B_LAYERS = {"gemma2": 46, "gemma3": 62}
"""Number of layers at which llama.cpp knows the one size whose queries are scaled by width / heads."""

_RMS = {"attention.layer_norm_rms_epsilon": "rms_norm_eps"}
SOFT_CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
"""Those of Gemma 2 where its file does not state them."""
_EXPERTS = {"expert_count": "num_experts", "expert_used_count": "num_experts_per_tok"}


def _halves(name: str, value: Array, config: PreTrainedConfig) -> Array:
    """llama.cpp's Llama turns neighbours in queries and keys against each other, transformers' the halves of a head."""
    if not name.startswith("blk.") or name.split(".")[2] not in ("attn_q", "attn_k"):
        return value
    n_heads = config.num_attention_heads if ".attn_q." in name else config.num_key_value_heads
    return value.reshape(n_heads, -1, 2, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)


def _norms_from_zero(name: str, value: Array, config: PreTrainedConfig) -> Array:
    """These models multiply by one more than their norms' weights; the file has one added."""
    return value - 1 if name.endswith("norm.weight") else value


def _transposed(name: str, value: Array, config: PreTrainedConfig) -> Array:
    """GPT-2's own layers are stored with inputs first."""
    return value.T if name.startswith("blk.") and value.ndim == 2 else value


def _one_shared_gate(name: str, value: Array, config: PreTrainedConfig) -> Array:
    return value.reshape(1, -1) if ".ffn_gate_inp_shexp." in name else value


def _gemma2(header: GgufHeader) -> Fields:
    """Every other layer has the window, from the first on."""
    caps = {name: header.get(f".{name}", cap) for name, cap in SOFT_CAPS.items()}
    return caps | _gemma_scale(header) | {"layer_types": _window_layers(header, 2)}


def _gemma3(header: GgufHeader) -> Fields:
    """Five of six layers have the window, and frequencies of their own that nothing scales."""
    local = {"rope_type": "default", "rope_theta": header.get(".rope.freq_base_swa", 10_000.0)}
    return _gemma_scale(header) | {
        **{name: header.get(f".{name}") for name in SOFT_CAPS},
        "layer_types": _window_layers(header, 6),
        "rope_parameters": {"full_attention": rope_parameters(header), "sliding_attention": local},
    }


def _gemma_scale(header: GgufHeader) -> Fields:
    widest = _n_layers(header) == GEMMA_27B_LAYERS[header.architecture]
    return {"query_pre_attn_scalar": _width(header) // _n_heads(header) if widest else _head_size(header)}


def _window_layers(header: GgufHeader, default_period: int) -> list[str]:
    n_layers = _n_layers(header)
    pattern = header.get(".attention.sliding_window_pattern", default_period)
    windows = pattern if isinstance(pattern, list) else [(i + 1) % pattern != 0 for i in range(n_layers)]
    return ["sliding_attention" if window else "full_attention" for window in windows]


def _granite(header: GgufHeader) -> Fields:
    """A multiplier of 0 is none."""
    return {
        "attention_multiplier": header.get(".attention.scale") or _head_size(header) ** -0.5,
        "embedding_multiplier": header.get(".embedding_scale") or 1.0,
        "residual_multiplier": header.get(".residual_scale") or 1.0,
        "logits_scaling": header.get(".logit_scale") or 1.0,
    }


def _phi3(header: GgufHeader) -> Fields:
    original = header.get(".rope.scaling.original_context_length", header.required(".context_length"))
    # A window of 0 is none.
    return {
        "original_max_position_embeddings": original,
        "sliding_window": header.get(".attention.sliding_window") or None,
    }


def _stablelm(header: GgufHeader) -> Fields:
    header.get(".use_parallel_residual")  # what the layers' tensors say counts, for llama.cpp too
    return {"use_parallel_residual": "blk.0.ffn_norm.weight" not in header.tensors}


@dataclass(frozen=True)
class Family:
    """One architecture. `keys`: a key of the file, without the architecture, and its field of the configuration;
    `fixed`: fields that the architecture implies; `present`: a field that is true if the file has this tensor."""

    model_type: str
    keys: Mapping[str, str] = field(default_factory=lambda: _RMS)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    present: Mapping[str, str] = field(default_factory=dict)
    more: Callable[[GgufHeader], Fields] = lambda header: {}
    restore: Restore = lambda name, value, config: value
    has_rope: bool = True
    own_head_size: bool = True
    turns_part_of_head: bool = False


_LLAMA_BIASES = {"attention_bias": "blk.0.attn_q.bias", "mlp_bias": "blk.0.ffn_gate.bias"}
_LAYER_NORM = "attention.layer_norm_epsilon"

FAMILIES: dict[str, Family] = {
    "llama": Family("llama", present=_LLAMA_BIASES, restore=_halves),
    "qwen2": Family("qwen2"),
    "qwen3": Family("qwen3", present={"attention_bias": "blk.0.attn_q.bias"}),
    "qwen2moe": Family(
        "qwen2_moe",
        keys={
            **_RMS,
            **_EXPERTS,
            "expert_feed_forward_length": "moe_intermediate_size",
            "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
        },
        fixed={"norm_topk_prob": False},
        restore=_one_shared_gate,
    ),
    "qwen3moe": Family(
        "qwen3_moe",
        keys={**_RMS, **_EXPERTS, "expert_feed_forward_length": "moe_intermediate_size"},
        fixed={"norm_topk_prob": True},
    ),
    "phi3": Family("phi3", more=_phi3, own_head_size=False, turns_part_of_head=True),
    "gemma": Family("gemma", restore=_norms_from_zero),
    "gemma2": Family(
        "gemma2",
        keys={**_RMS, "attention.sliding_window": "sliding_window"},
        more=_gemma2,
        restore=_norms_from_zero,
    ),
    "gemma3": Family(
        "gemma3_text",
        keys={**_RMS, "attention.sliding_window": "sliding_window"},
        more=_gemma3,
        restore=_norms_from_zero,
    ),
    "starcoder2": Family("starcoder2", keys={_LAYER_NORM: "norm_epsilon"}, fixed={"sliding_window": None}),
    "stablelm": Family(
        "stablelm",
        keys={_LAYER_NORM: "layer_norm_eps"},
        present={"use_qkv_bias": "blk.0.attn_q.bias"},
        more=_stablelm,
        own_head_size=False,
        turns_part_of_head=True,
    ),
    "nemotron": Family("nemotron", keys={_LAYER_NORM: "norm_eps"}, restore=_norms_from_zero, turns_part_of_head=True),
    "command-r": Family(
        "cohere",
        keys={_LAYER_NORM: "layer_norm_eps", "logit_scale": "logit_scale"},
        present={"use_qk_norm": "blk.0.attn_q_norm.weight", "attention_bias": "blk.0.attn_q.bias"},
    ),
    "granite": Family("granite", present=_LLAMA_BIASES, more=_granite, restore=_halves),
    "olmo2": Family("olmo2"),
    "gpt2": Family(
        "gpt2",
        keys={_LAYER_NORM: "layer_norm_epsilon"},
        more=lambda header: {"n_inner": header.get(".feed_forward_length")},
        restore=_transposed,
        has_rope=False,
        own_head_size=False,
    ),
}


def configuration_fields(header: GgufHeader) -> tuple[Family, Fields]:
    """The family of a file and the fields of its configuration in transformers, all but those of its vocabulary.

    Raises ValueError for a family that is not read, a key that is not there, or one that cannot be applied.
    """
    family = FAMILIES.get(header.architecture)
    if family is None:
        raise ValueError(
            f"GGUF files of the family {header.architecture} are not read, only {', '.join(sorted(FAMILIES))}; "
            "name a directory with safetensors"
        )
    header.expect(".attention.causal", True)
    fields: Fields = {
        "max_position_embeddings": header.positive(".context_length"),
        "hidden_size": _width(header),
        "num_hidden_layers": _n_layers(header),
        "intermediate_size": header.one(".feed_forward_length"),
        "num_attention_heads": _n_heads(header),
        "num_key_value_heads": header.one(".attention.head_count_kv", _n_heads(header)),
        "tie_word_embeddings": "output.weight" not in header.tensors,
    }
    if family.has_rope:
        fields["rope_parameters"] = rope_parameters(header)
    fields |= {name: header.positive(f".{key}") for key, name in family.keys.items()}
    fields |= {name: tensor in header.tensors for name, tensor in family.present.items()}
    fields |= _heads(header, family, fields)
    return family, {**fields, **family.fixed, **family.more(header)}


def _heads(header: GgufHeader, family: Family, fields: Fields) -> Fields:
    """Size of a head and how much of it turns with the position. Raises ValueError for what the family cannot say."""
    size = _head_size(header)
    header.expect(".attention.value_length", size)
    if family.turns_part_of_head:
        fields["rope_parameters"]["partial_rotary_factor"] = header.get(".rope.dimension_count", size) / size
    else:
        header.expect(".rope.dimension_count", size)
    rope = fields.get("rope_parameters", {})
    for divisors in (rope[name] for name in ("short_factor", "long_factor") if name in rope):
        if len(divisors) != (n_turned := int(size * rope.get("partial_rotary_factor", 1))) // 2:
            raise ValueError(f"it divides {len(divisors)} frequencies, and {n_turned} numbers of a head turn in pairs")
    if family.own_head_size:
        return {"head_dim": size}
    header.expect(".attention.key_length", _width(header) // _n_heads(header))
    return {}


def _head_size(header: GgufHeader) -> int:
    size: int = header.positive(".attention.key_length", _width(header) // _n_heads(header))
    return size


def _width(header: GgufHeader) -> int:
    width: int = header.positive(".embedding_length")
    return width


def _n_layers(header: GgufHeader) -> int:
    n_layers: int = header.positive(".block_count")
    if n_layers > len(header.tensors):
        raise ValueError(f"{header.architecture}.block_count is {n_layers:,}, and it has {len(header.tensors)} tensors")
    return n_layers


def _n_heads(header: GgufHeader) -> int:
    header.required(".attention.head_count")
    n_heads: int = header.one(".attention.head_count")
    return n_heads
