"""A GGUF file gives the logits of the same weights in a directory, whatever its keys say, for every family taken."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf_files import TOKENIZER, random_model, tensors_of, write
from torch import Tensor
from transformers import PreTrainedModel

from specstudy.models.gguf_families import FAMILIES, configuration_fields
from specstudy.models.gguf_header import GgufHeader
from specstudy.models.gguf_model import read_gguf

WIDTH, INNER, HEADS, KEY_HEADS, HEAD, CONTEXT = 64, 48, 4, 2, 24, 128
EPSILON, BASE = 0.03, 77.0
IDS = torch.arange(45)[None] * 7 % 250


@dataclass(frozen=True)
class Case:
    """A model, and how a file says what is unusual about it."""

    architecture: str
    model_type: str
    settings: dict[str, Any]
    keys: dict[str, Any]
    extra: dict[str, list[float]] = field(default_factory=dict)


def case(
    architecture: str,
    model_type: str = "",
    *,
    norm: str = "rms_norm_eps",
    head: int = HEAD,
    turned: int | None = None,
    rope: dict[str, Any] | None = None,
    keys: dict[str, Any] | None = None,
    extra: dict[str, list[float]] | None = None,
    **settings: Any,
) -> Case:
    """Shape, epsilon and base of all families, with what is special to this one."""
    is_rms = norm == "rms_norm_eps"
    base = {"rope_theta": BASE, "rope_type": "default"} | ({"partial_rotary_factor": turned / head} if turned else {})
    return Case(
        architecture,
        model_type or architecture,
        {
            "hidden_size": WIDTH,
            "intermediate_size": INNER,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KEY_HEADS,
            "max_position_embeddings": CONTEXT,
            norm: EPSILON,
            **({"head_dim": head} if head != WIDTH // HEADS else {}),
            "rope_parameters": base | (rope or {}),
            "tie_word_embeddings": False,
            **settings,
        },
        {
            ".context_length": CONTEXT,
            ".embedding_length": WIDTH,
            ".block_count": 3,
            ".feed_forward_length": INNER,
            ".attention.head_count": HEADS,
            ".attention.head_count_kv": KEY_HEADS,
            ".attention.key_length": head,
            ".attention.value_length": head,
            ".rope.dimension_count": turned or head,
            ".rope.freq_base": BASE,
            f".attention.layer_norm_{'rms_' if is_rms else ''}epsilon": EPSILON,
            **(keys or {}),
        },
        extra or {},
    )


LAYER_NORM = {"norm": "layer_norm_eps"}
EXPERTS = {"num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 20}
EXPERT_KEYS = {".expert_count": 5, ".expert_used_count": 3, ".expert_feed_forward_length": 20}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 9.0,
    "low_freq_factor": 1.5,
    "high_freq_factor": 5.0,
    "original_max_position_embeddings": 40,
}
GEMMA2 = {"query_pre_attn_scalar": HEAD, "sliding_window": 9, "tie_word_embeddings": True}


def llama3_divisors() -> list[float]:
    """As the converter writes Llama 3.1's frequencies."""
    lengths = 2 * np.pi * BASE ** (np.arange(0, HEAD, 2) / HEAD)
    original, low, high, factor = 40, 1.5, 5.0, 9.0
    smooth = ((original / lengths - low) / (high - low)).clip(0, 1)
    return list(1 / ((1 - smooth) / factor + smooth))


def linspace(start: float, stop: float) -> list[float]:
    return list(np.linspace(start, stop, 6))


CASES = {
    "llama": case("llama", attention_bias=True, mlp_bias=True),
    "llama, tied, no biases": case("llama", tie_word_embeddings=True),
    "llama, frequencies divided": case("llama", rope=LLAMA3, extra={"rope_freqs.weight": llama3_divisors()}),
    "llama, linear": case(
        "llama",
        rope={"rope_type": "linear", "factor": 3.0},
        keys={".rope.scaling.type": "linear", ".rope.scaling.factor": 3.0},
    ),
    "qwen2": case("qwen2", head=16),
    "qwen2, yarn": case(
        "qwen2",
        head=16,
        rope={"rope_type": "yarn", "factor": 5.0, "original_max_position_embeddings": 24},
        keys={
            ".rope.scaling.type": "yarn",
            ".rope.scaling.factor": 5.0,
            ".rope.scaling.original_context_length": 24,
        },
    ),
    "qwen3": case("qwen3"),
    "qwen2moe": case(
        "qwen2moe",
        "qwen2_moe",
        head=16,
        **EXPERTS,
        shared_expert_intermediate_size=28,
        keys={**EXPERT_KEYS, ".expert_shared_feed_forward_length": 28},
    ),
    "qwen3moe": case("qwen3moe", "qwen3_moe", **EXPERTS, norm_topk_prob=True, keys=EXPERT_KEYS),
    "phi3": case("phi3", head=16, turned=12, sliding_window=9, keys={".attention.sliding_window": 9}),
    "phi3, long": case(
        "phi3",
        head=16,
        turned=12,
        original_max_position_embeddings=32,
        rope={
            "rope_type": "longrope",
            "short_factor": linspace(1, 2),
            "long_factor": linspace(3, 7),
            "attention_factor": 1.3,
        },
        keys={
            ".rope.scaling.original_context_length": 32,
            ".rope.scaling.attn_factor": 1.3,
        },
        extra={"rope_factors_short.weight": linspace(1, 2), "rope_factors_long.weight": linspace(3, 7)},
    ),
    "gemma": case("gemma", tie_word_embeddings=True),
    "gemma2": case(
        "gemma2",
        **GEMMA2,
        attn_logit_softcapping=0.7,
        final_logit_softcapping=3.0,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        keys={
            ".attention.sliding_window": 9,
            ".attn_logit_softcapping": 0.7,
            ".final_logit_softcapping": 3.0,
        },
    ),
    "gemma3": case(
        "gemma3",
        "gemma3_text",
        **{
            **GEMMA2,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": BASE},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            },
        },
        attn_logit_softcapping=0.7,
        final_logit_softcapping=3.0,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        keys={
            ".attention.sliding_window": 9,
            ".attention.sliding_window_pattern": 2,
            ".attn_logit_softcapping": 0.7,
            ".final_logit_softcapping": 3.0,
            ".rope.scaling.type": "linear",
            ".rope.scaling.factor": 3.0,
        },
    ),
    "starcoder2": case("starcoder2", norm="norm_epsilon", use_bias=True, sliding_window=None),
    "stablelm": case("stablelm", **LAYER_NORM, head=16, turned=4, use_qkv_bias=True),
    "stablelm, parallel": case("stablelm", **LAYER_NORM, head=16, turned=4, use_parallel_residual=True),
    "nemotron": case("nemotron", norm="norm_eps", turned=12),
    "command-r": case(
        "command-r",
        "cohere",
        **LAYER_NORM,
        use_qk_norm=True,
        logit_scale=0.3,
        tie_word_embeddings=True,
        keys={".logit_scale": 0.3},
    ),
    "granite": case(
        "granite",
        embedding_multiplier=3.0,
        residual_multiplier=0.4,
        attention_multiplier=0.11,
        logits_scaling=2.5,
        keys={".embedding_scale": 3.0, ".residual_scale": 0.4, ".attention.scale": 0.11, ".logit_scale": 2.5},
    ),
    "olmo2": case("olmo2"),
    "gpt2": Case(
        "gpt2",
        "gpt2",
        {"n_embd": 32, "n_head": 4, "n_inner": 40, "n_positions": 64, "layer_norm_epsilon": EPSILON},
        {
            ".context_length": 64,
            ".embedding_length": 32,
            ".block_count": 3,
            ".feed_forward_length": 40,
            ".attention.head_count": 4,
            ".attention.layer_norm_epsilon": EPSILON,
        },
    ),
}


def test_every_family_that_is_read_stands_here() -> None:
    assert {one.architecture for one in CASES.values()} == FAMILIES.keys()


Written = tuple[Case, PreTrainedModel, Path]


@pytest.fixture(params=CASES, scope="module")
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A case, its model, and its file."""
    one = CASES[request.param]
    settings = {**one.settings}
    if one.architecture == "starcoder2":
        settings |= {"residual_dropout": 0.0, "embedding_dropout": 0.0}
    model = random_model(one.model_type, **settings)
    extra = {name: np.array(values, np.float32) for name, values in one.extra.items()}
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    write(path, one.architecture, one.keys | TOKENIZER, tensors_of(model, one.architecture) | extra)
    return one, model, path


def logits(model: PreTrainedModel) -> Tensor:
    with torch.inference_mode():
        return model(IDS).logits


def test_logits_are_those_of_the_same_weights_in_a_directory(written: Written) -> None:
    _, model, path = written
    expected = logits(model)
    loaded, report = read_gguf(path).load(torch.float32)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    torch.testing.assert_close(logits(loaded), expected, rtol=1e-4, atol=1e-4)


def test_another_value_of_any_key_is_another_model_or_refused(written: Written, tmp_path: Path) -> None:
    one, _, path = written
    original = read(path)
    assert isinstance(original, dict)
    header_tensors = {name: np.array(values, np.float32) for name, values in one.extra.items()}
    if not original["tie_word_embeddings"]:
        header_tensors["output.weight"] = np.zeros((2, 2), np.float32)
    for key, value in one.keys.items():
        other = "yarn" if value == "linear" else "linear" if value == "yarn" else value * 2
        changed = write(tmp_path / f"{key}.gguf", one.architecture, {**one.keys, key: other}, header_tensors)
        assert read(changed) != original, key


def read(path: Path) -> dict[str, Any] | str:
    """The fields of a file's configuration, or why it is refused."""
    try:
        return configuration_fields(GgufHeader(path))[1]
    except ValueError as refusal:
        return str(refusal)
