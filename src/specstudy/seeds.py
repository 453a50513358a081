"""(seed, stage, prompt, gamma, repetition) -> a stream of uniforms, alike on any device and in any order."""

from __future__ import annotations

import hashlib
import json

import numpy as np


def derived_seed(*parts: int | str | None) -> int:
    """A 63-bit seed from the written-out parts: unlike a running generator, it does not depend on what ran before.

    Parts that differ in value, type or number give seeds that differ. Raises TypeError for a part of another type.
    """
    for part in parts:
        if part is not None and type(part) not in (int, str):
            raise TypeError(f"a seed is made of integers, strings and None, not of {part!r}")
    return int.from_bytes(hashlib.sha256(json.dumps(parts).encode()).digest()[:8], "big") >> 1


def uniforms(*parts: int | str | None) -> np.random.Generator:
    """A CPU generator for these parts. Its `random(n, dtype=float32)` numbers feed every draw of a generation."""
    return np.random.Generator(np.random.Philox(derived_seed(*parts)))
