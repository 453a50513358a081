"""The self-check on the shipped pair in 16-bit precision: it passes on the honest engine and sees each stale cache.

Twenty seeds each; an honest engine may be flagged once, a planted fault may be missed once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest
import torch
from _common import prompt_ids
from _faults import stale_draft, stale_verifier

from specstudy.measure.check_outcomes import SelfCheck
from specstudy.measure.decode import GenerationSettings
from specstudy.measure.sampling import Warp
from specstudy.measure.self_check import run_self_check
from specstudy.measure.speculation_records import SpeculationSettings
from specstudy.models.load import Pair, load_pair

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

N_SEEDS = 20
N_TOKENS = 16
PROMPTS = ("factual-05", "code-01", "creative-01")


@pytest.fixture(scope="module")
def pair() -> Pair:
    torch.set_num_threads(1)
    return load_pair("embedded:smollm2", "data/models/smollm2-draft", torch.device("cpu"), torch.bfloat16)


def outcomes(pair: Pair, fault: Callable[[], AbstractContextManager[None]]) -> list[SelfCheck]:
    how = SpeculationSettings(
        GenerationSettings(Warp(0.7, 0.9), N_TOKENS, pair.eos_ids),
        gamma=4,
        proposer="model",
        stop="none",
        stop_threshold=0.5,
    )
    prompts = [prompt_ids(pair, name) for name in PROMPTS]
    with fault():
        return [
            run_self_check(pair, prompts, [how], lambda index, seed=seed: np.random.default_rng([seed, index]))
            for seed in range(N_SEEDS)
        ]


def test_the_honest_engine_is_flagged_at_most_once(pair: Pair) -> None:
    assert sum(not outcome.passed for outcome in outcomes(pair, nullcontext)) <= 1


def test_a_stale_draft_cache_is_caught_by_its_logits_alone(pair: Pair) -> None:
    found = outcomes(pair, stale_draft)
    assert sum(outcome.draft_logits is not None and not outcome.draft_logits.passed for outcome in found) >= N_SEEDS - 1
    # It costs acceptance, and nothing else: the verifier and the distribution are as they should be.
    assert sum(outcome.verifier_logits.passed and outcome.distribution.passed for outcome in found) >= N_SEEDS - 1


def test_a_stale_verifier_cache_is_caught(pair: Pair) -> None:
    found = outcomes(pair, stale_verifier)
    assert sum(not outcome.verifier_logits.passed for outcome in found) >= N_SEEDS - 1
