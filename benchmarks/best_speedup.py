"""The best speed-up over the verifier alone, of several gammas, sampled and greedy: in turn, medians over prompts."""

from __future__ import annotations

import statistics

from _common import alone_per_s, embedded_pair, figure, speculated, study_prompts

from specstudy.measure.decode import GenerationSettings
from specstudy.measure.sampling import Warp

N_TOKENS = 64
GAMMAS = (1, 2, 3, 4)
SAMPLING = {"sampled": Warp(0.7, 0.9), "greedy": Warp(0.0, 1.0)}
PER_CATEGORY = 1


def main() -> None:
    pair = embedded_pair()
    prompts = study_prompts(pair, PER_CATEGORY)
    best = 0.0
    for kind, warp in SAMPLING.items():
        settings = GenerationSettings(warp, N_TOKENS, pair.eos_ids)
        speedups: dict[int, list[float]] = {gamma: [] for gamma in GAMMAS}
        for seed, ids in enumerate(prompts):
            alone = alone_per_s(pair, ids, settings, seed)
            for gamma in GAMMAS:
                generation = speculated(pair, ids, settings, gamma, seed)
                speedups[gamma].append(len(generation.token_ids) / generation.decode_s / alone)
        for gamma, found in speedups.items():
            figure(f"speedup_{kind}_gamma_{gamma}", statistics.median(found))
            best = max(best, statistics.median(found))
    figure("best_speedup", best)


if __name__ == "__main__":
    main()
