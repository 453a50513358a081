"""How a GGUF file turns queries and keys with the position, in the words of transformers."""

from __future__ import annotations

import math
from typing import Any

from gguf import dequantize

from specstudy.models.gguf_header import GgufHeader

DIVISORS = "rope_freqs.weight"
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
SCALING = ".rope.scaling."


def rope_parameters(header: GgufHeader) -> dict[str, Any]:
    """Base and scaling of the frequencies. Raises ValueError, naming the key, for a scaling that cannot be applied."""
    base = {"rope_theta": header.positive(".rope.freq_base", 10_000.0)}
    kind = header.get(f"{SCALING}type", "linear")  # what llama.cpp takes a factor without a type for
    factor = header.get(f"{SCALING}factor", header.get(".rope.scale_linear", 0.0)) or 1.0
    original = header.get(f"{SCALING}original_context_length") or header.required(".context_length")
    header.get(f"{SCALING}finetuned")  # how the model was trained, not how it is run
    if header.tensors.keys() & {DIVISORS, LONG, SHORT}:
        return base | _divided(header, kind, factor, original)
    if kind == "yarn":
        return base | _yarn(header, factor, original)
    header.expect(f"{SCALING}type", "linear", "none")
    header.expect(f"{SCALING}attn_factor", 1.0)
    if kind == "none" or factor == 1.0:
        return base | {"rope_type": "default"}
    return base | {"rope_type": "linear", "factor": factor}


def _divided(header: GgufHeader, kind: str, factor: float, original: int) -> dict[str, Any]:
    """Each frequency has a divisor: one for all lengths (Llama 3.1), or one for short and one for long texts (Phi-3).

    Divisors for all lengths are those of transformers' longrope with nothing to switch to.
    """
    header.expect(f"{SCALING}type", "linear", "none", "longrope")
    if kind == "linear" and factor != 1.0:
        header.expect(f"{SCALING}factor", 1.0)
    if DIVISORS in header.tensors:
        short = long = _values(header, DIVISORS)
        original = header.required(".context_length")
    else:
        short, long = _values(header, SHORT), _values(header, LONG)
    return {
        "rope_type": "longrope",
        "factor": header.required(".context_length") / original,
        "short_factor": short,
        "long_factor": long,
        "attention_factor": header.get(f"{SCALING}attn_factor", 1.0),
        "original_max_position_embeddings": original,
    }


def _yarn(header: GgufHeader, factor: float, original: int) -> dict[str, Any]:
    header.expect(f"{SCALING}yarn_ext_factor", 1.0)
    return {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": original,
        "attention_factor": header.get(f"{SCALING}attn_factor", 1.0) * (1 + 0.1 * math.log(factor)),
        "beta_fast": header.get(f"{SCALING}yarn_beta_fast", 32.0),
        "beta_slow": header.get(f"{SCALING}yarn_beta_slow", 1.0),
    }


def _values(header: GgufHeader, name: str) -> list[float]:
    tensor = header.tensor(name)
    values: list[float] = dequantize(tensor.data, tensor.tensor_type).ravel().tolist()
    return values
