"""What stale caches cost: acceptance and speed-up with and without each fault, on the same prompts and seeds.

The faults are planted from outside (`_faults.py`). A stale draft leaves the text lossless and only costs acceptance,
the more the oftener a draft is accepted whole: with the embedded draft at gamma 1 to 4, and with the verifier as its
own draft, which agrees always. A stale verifier also changes the text.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

import numpy as np
from _common import alone_per_s, embedded_pair, figure, speculated, study_prompts
from _faults import stale_draft, stale_verifier

from specstudy.measure.decode import GenerationSettings
from specstudy.measure.sampling import Warp
from specstudy.measure.speculative import Round
from specstudy.models.load import Pair

N_TOKENS = 64
WARP = Warp(0.7, 0.9)
PER_CATEGORY = 1


@contextmanager
def stale_both() -> Iterator[None]:
    with stale_draft(), stale_verifier():
        yield


ENGINES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "honest": nullcontext,
    "stale_draft": stale_draft,
    "stale_verifier": stale_verifier,
    "stale_both": stale_both,
}


def measure(pair: Pair, gamma: int, name: str, prompts: list[list[int]], alone: list[float]) -> None:
    """Print acceptance and speed-up of every engine."""
    settings = GenerationSettings(WARP, N_TOKENS, pair.eos_ids)
    rounds: dict[str, list[Round]] = {engine: [] for engine in ENGINES}
    speedups: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for seed, (ids, reference_per_s) in enumerate(zip(prompts, alone, strict=True)):
        for engine, planted in ENGINES.items():
            with planted():
                generation = speculated(pair, ids, settings, gamma, seed)
            rounds[engine] += generation.rounds
            speedups[engine].append(len(generation.token_ids) / generation.decode_s / reference_per_s)
    for engine, found in rounds.items():
        tested = np.concatenate([r.drafted["expected_accept"][: r.n_tested] for r in found])
        figure(f"acceptance_rate_{engine}_{name}", sum(r.n_accepted for r in found) / sum(r.n_proposed for r in found))
        figure(f"alpha_expected_{engine}_{name}", float(tested.mean()))
        figure(f"speedup_{engine}_{name}", statistics.median(speedups[engine]))


def main() -> None:
    pair = embedded_pair()
    prompts = study_prompts(pair, PER_CATEGORY)
    settings = GenerationSettings(WARP, N_TOKENS, pair.eos_ids)
    alone = [alone_per_s(pair, ids, settings, seed) for seed, ids in enumerate(prompts)]
    for gamma in (1, 2, 4):
        measure(pair, gamma, f"gamma_{gamma}", prompts, alone)
    measure(replace(pair, draft=pair.verifier), 4, "own_draft_gamma_4", prompts, alone)


if __name__ == "__main__":
    main()
