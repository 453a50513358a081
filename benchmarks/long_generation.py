"""2,000 new tokens: speed by length of the text against transformers' `generate()`, and memory beyond the cache."""

from __future__ import annotations

import resource
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import as_transformers_runs_it, embedded_pair, figure, generated_by_transformers, prompt_ids, replaced
from _processes import peak_mib
from torch import Tensor
from transformers import StoppingCriteria

from specstudy.measure.decode import GenerationSettings, generate
from specstudy.measure.sampling import Warp
from specstudy.models.cache import CachedModel
from specstudy.models.load import Pair

N_TOKENS = 2000
PLACES = (250, 500, 1000, 2000)
AROUND = 60
WARP = Warp(0.7, 0.9)
MIB = 2**20


def held_mib() -> float:
    """Memory that this process holds: now, or at most so far where the system does not tell."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return float(statm.read_text().split()[1]) * resource.getpagesize() / MIB
    return peak_mib()


def cache_mib(cached: CachedModel) -> float:
    """What the cache's rooms take."""
    rooms = [room for layer in cached._cache.layers for room in getattr(layer, "_rooms", None) or ()]
    return float(sum(room.numel() * room.element_size() for room in rooms)) / MIB


def ours(pair: Pair, ids: list[int]) -> tuple[list[float], list[float]]:
    """When each step began, and how much memory beyond the cache the process held by then."""
    began_s: list[float] = []
    beyond_mib: list[float] = []
    real = CachedModel.forward

    def noting(self: Any, fed: Tensor, keep: int, **among: Any) -> Tensor:
        began_s.append(time.perf_counter())
        beyond_mib.append(held_mib() - cache_mib(self))
        return real(self, fed, keep, **among)

    with replaced(CachedModel, forward=noting):
        generate(pair.verifier, ids, GenerationSettings(WARP, N_TOKENS, ()), np.random.default_rng(0))
    return began_s, beyond_mib


class _Clock(StoppingCriteria):
    """Never stops; notes the time of every token."""

    def __init__(self) -> None:
        self.at_s: list[float] = []

    def __call__(self, input_ids: Tensor, scores: Tensor, **others: Any) -> Tensor:
        self.at_s.append(time.perf_counter())
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def theirs(ids: list[int]) -> list[float]:
    """When each token of `generate()` was done."""
    clock = _Clock()
    generated_by_transformers(as_transformers_runs_it(), ids, WARP, N_TOKENS, stopping_criteria=[clock])
    return clock.at_s


def main() -> None:
    pair = embedded_pair()
    ids = prompt_ids(pair)
    began_s, beyond_mib = ours(pair, ids)
    done_s = theirs(ids)
    for place in PLACES:
        mine, other = (
            1.0 / statistics.median(np.diff(times)[max(0, place - AROUND) : place]) for times in (began_s, done_s)
        )
        figure(f"tokens_per_s_at_{place}", mine)
        figure(f"over_generate_at_{place}", mine / other)
    figure("memory_growth_beyond_cache_mib", beyond_mib[-1] - beyond_mib[PLACES[0]])


if __name__ == "__main__":
    main()
