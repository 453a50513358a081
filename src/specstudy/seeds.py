"""(seed, stage, prompt, gamma, repetition) -> an independent stream of uniforms, the same on every device and in every order."""

from __future__ import annotations

import hashlib

import numpy as np


def derived_seed(*parts: object) -> int:
    """A 63-bit seed from the written-out parts: unlike a running generator, it does not depend on what ran before."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def uniforms(*parts: object) -> np.random.Generator:
    """A CPU generator for these parts. Its `random(n, dtype=float32)` numbers feed every draw of a generation."""
    return np.random.Generator(np.random.Philox(derived_seed(*parts)))
