"""The verifier alone with everything recorded: tokens per second against `generate()`, and what recording costs."""

from __future__ import annotations

import numpy as np
import torch
from _common import (
    REPEATS,
    as_transformers_runs_it,
    embedded_pair,
    figure,
    generated_by_transformers,
    median_ratio,
    prompt_ids,
    seconds,
)

from specstudy.measure import sampling
from specstudy.measure.decode import GenerationSettings, generate
from specstudy.measure.sampling import Warp
from specstudy.models.cache import CachedModel

N_TOKENS = 64
WARP = Warp(0.7, 0.9)


def main() -> None:
    pair = embedded_pair()
    theirs = as_transformers_runs_it()
    ids = prompt_ids(pair)
    settings = GenerationSettings(WARP, N_TOKENS, (), 5)
    tokens = torch.tensor(ids, device=pair.verifier.device)

    def ours() -> float:
        return seconds(lambda: generate(pair.verifier, ids, settings, np.random.default_rng(0)))

    def bare() -> float:
        """The same loop, nothing recorded."""

        def work() -> None:
            cached = CachedModel(pair.verifier)
            uniforms = torch.from_numpy(np.random.default_rng(0).random(N_TOKENS, dtype=np.float32))
            cached.prefill(tokens[:-1])
            feed = tokens[-1:]
            for index in range(N_TOKENS):
                warped = sampling.warp(cached.forward(feed, keep=1), WARP)
                feed = sampling.draw(warped.ids, warped.probabilities, uniforms[index : index + 1])
                feed.tolist()

        return seconds(work)

    def transformers_generate() -> float:
        return seconds(lambda: generated_by_transformers(theirs, ids, WARP, N_TOKENS))

    figure("decode_vs_generate", median_ratio(transformers_generate, ours))
    figure("capture_cost", median_ratio(ours, bare, 2 * REPEATS))


if __name__ == "__main__":
    main()
