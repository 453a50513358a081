"""The best speed-up over the verifier alone, of several gammas, sampled and greedy: time of all prompts' answers.

Both sides are timed in turn on each prompt, and nothing ends a text early.
"""

from __future__ import annotations

from _common import alone_per_s, embedded_pair, figure, speculated, study_prompts

from specstudy.measure.decode import GenerationSettings
from specstudy.measure.sampling import Warp
from specstudy.models.load import Pair

N_TOKENS = 64
GAMMAS = (1, 2, 3, 4)
SAMPLING = {"sampled": Warp(0.7, 0.9), "greedy": Warp(0.0, 1.0)}
PER_CATEGORY = 1


def speedup(pair: Pair, prompts: list[list[int]], warp: Warp, gamma: int) -> float:
    """Tokens per second over all prompts, speculative over alone."""
    settings = GenerationSettings(warp, N_TOKENS, ())
    ours_s = alone_s = 0.0
    for seed, ids in enumerate(prompts):
        alone_s += N_TOKENS / alone_per_s(pair, ids, settings, seed)
        ours_s += speculated(pair, ids, settings, gamma, seed).decode_s
    return alone_s / ours_s


def main() -> None:
    pair = embedded_pair()
    prompts = study_prompts(pair, PER_CATEGORY)
    speedup(pair, prompts[:1], SAMPLING["sampled"], 1)  # warms up
    best = 0.0
    for kind, warp in SAMPLING.items():
        for gamma in GAMMAS:
            found = speedup(pair, prompts, warp, gamma)
            figure(f"speedup_{kind}_gamma_{gamma}", found)
            best = max(best, found)
    figure("best_speedup", best)


if __name__ == "__main__":
    main()
