"""What stale caches cost: acceptance and speed-up with and without each fault, on the same prompts and seeds.

The faults are planted from outside (`_faults.py`). A stale draft leaves the text lossless and only costs acceptance; a
stale verifier also changes the text.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from _common import alone_per_s, embedded_pair, figure, speculated, study_prompts
from _faults import stale_draft, stale_verifier

from specstudy.measure.decode import GenerationSettings
from specstudy.measure.sampling import Warp

N_TOKENS = 64
GAMMA = 4
WARP = Warp(0.7, 0.9)
PER_CATEGORY = 2


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


def main() -> None:
    pair = embedded_pair()
    settings = GenerationSettings(WARP, N_TOKENS, pair.eos_ids)
    counts = {name: [0, 0, 0] for name in ENGINES}
    speedups: dict[str, list[float]] = {name: [] for name in ENGINES}
    for seed, ids in enumerate(study_prompts(pair, PER_CATEGORY)):
        alone = alone_per_s(pair, ids, settings, seed)
        for name, planted in ENGINES.items():
            with planted():
                generation = speculated(pair, ids, settings, GAMMA, seed)
            speedups[name].append(len(generation.token_ids) / generation.decode_s / alone)
            for r in generation.rounds:
                for place, n in enumerate((r.n_accepted, r.n_tested, r.n_proposed)):
                    counts[name][place] += n
    for name, (n_accepted, n_tested, n_proposed) in counts.items():
        figure(f"acceptance_rate_{name}", n_accepted / n_proposed)
        figure(f"alpha_{name}", n_accepted / n_tested)
        figure(f"speedup_{name}", statistics.median(speedups[name]))


if __name__ == "__main__":
    main()
