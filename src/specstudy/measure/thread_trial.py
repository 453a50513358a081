"""A trial of about a second: how long a step of each model takes with one thread and with all cores."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from specstudy.models import device as devices
from specstudy.models.cache import CachedModel
from specstudy.models.load import LanguageModel, Pair

TRIAL_S = 1.0
N_TEXT = 32
STEPS_IN_A_TURN = 3
FEWEST_TURNS = 2
GAIN = 0.1
"""By this share a step must be shorter with all cores: each thread more is one more that others can delay."""


@dataclass(frozen=True)
class StepSeconds:
    """Median time of a step over one token, by number of threads."""

    verifier: Mapping[int, float]
    draft: Mapping[int, float]


def fastest(verifier_step_s: Mapping[int, float]) -> int:
    """The number of threads for a study, most of whose time goes into passes of the verifier: the fewest, unless more
    of them shorten its step by GAIN."""
    fewest, most = min(verifier_step_s), max(verifier_step_s)
    return most if verifier_step_s[most] < (1 - GAIN) * verifier_step_s[fewest] else fewest


@torch.inference_mode()
def try_threads(pair: Pair, counts: tuple[int, ...], trial_s: float = TRIAL_S) -> StepSeconds:
    """Steps of both models with each number of threads, taken in turns so that all see the same machine, for `trial_s`
    seconds or FEWEST_TURNS."""
    before = torch.get_num_threads()
    models = {"verifier": _at_work(pair.verifier), "draft": _at_work(pair.draft)}
    taken: dict[str, dict[int, list[float]]] = {name: {count: [] for count in counts} for name in models}
    started_s, n_turns = time.perf_counter(), 0
    try:
        while n_turns < FEWEST_TURNS or time.perf_counter() - started_s < trial_s:
            for count in counts:
                torch.set_num_threads(count)
                for name, cached in models.items():
                    taken[name][count] += _turn(cached)
            n_turns += 1
    finally:
        torch.set_num_threads(before)
    found = {name: {count: float(np.median(s)) for count, s in times.items()} for name, times in taken.items()}
    return StepSeconds(**found)


def _at_work(model: LanguageModel) -> CachedModel:
    """The model with a short text in its cache; which text makes no difference to the time."""
    cached = CachedModel(model)
    cached.prefill(torch.arange(N_TEXT, device=model.device) % model.vocabulary)
    return cached


def _turn(cached: CachedModel) -> list[float]:
    """Seconds of a few steps, less the first, which wakes the threads."""
    device, times = cached.model.device, []
    token = torch.zeros(1, dtype=torch.long, device=device)
    for _ in range(1 + STEPS_IN_A_TURN):
        started_s = devices.now_s(device)
        cached.forward(token, keep=1)
        times.append(devices.now_s(device) - started_s)
        cached.rollback(N_TEXT)
    return times[1:]
