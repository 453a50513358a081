"""What the cache saves: writing n tokens with it against passing the whole text again for every token.

Passes over the whole text are timed at eight lengths and added up by trapezoids: all of them would take minutes.
"""

from __future__ import annotations

import statistics
from functools import partial

import numpy as np
import torch
from _common import embedded_pair, figure, prompt_ids, seconds

from specstudy.measure.decode import GenerationSettings, generate
from specstudy.measure.sampling import Warp

LENGTHS = (25, 50, 100, 200, 400)
POINTS = (0, 25, 50, 100, 150, 200, 300, 400)
REPEATS = 2


def main() -> None:
    pair = embedded_pair()
    ids = prompt_ids(pair)
    settings = GenerationSettings(Warp(0.7, 0.9), max(LENGTHS), ())
    module, device = pair.verifier.module, pair.verifier.device
    whole_s: dict[int, list[float]] = {n: [] for n in POINTS}
    cached_s: dict[int, list[float]] = {n: [] for n in LENGTHS}
    for seed in range(REPEATS):
        generation = generate(pair.verifier, ids, settings, np.random.default_rng(seed))
        per_token = generation.decode_s / len(generation.steps) - statistics.mean(generation.forward_s)
        forwards = np.cumsum(generation.forward_s)
        for n in LENGTHS:
            cached_s[n].append(float(forwards[n - 1]) + n * per_token)
        text = torch.tensor([[*ids, *generation.token_ids]], device=device)
        for n, found in whole_s.items():
            found.append(seconds(partial(module, input_ids=text[:, : len(ids) + n], use_cache=False, logits_to_keep=1)))
    times = [statistics.median(whole_s[n]) for n in POINTS]
    for n in LENGTHS:
        upto = POINTS.index(n) + 1
        figure(f"caching_gain_{n}_tokens", np.trapezoid(times[:upto], POINTS[:upto]) / statistics.median(cached_s[n]))


if __name__ == "__main__":
    main()
