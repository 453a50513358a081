"""The verifier alone with everything recorded: tokens per second against `generate()`, and what recording costs."""

from __future__ import annotations

import numpy as np
import torch
from _common import embedded_pair, figure, median_ratio, prompt_ids, seconds

from specstudy.measure import sampling
from specstudy.measure.decode import GenerationSettings, generate
from specstudy.measure.sampling import Warp
from specstudy.models.cache import CachedModel

N_TOKENS = 64
WARP = Warp(0.7, 0.9)


def main() -> None:
    pair = embedded_pair()
    ids = prompt_ids(pair)
    settings = GenerationSettings(WARP, N_TOKENS, (), 5)
    tokens = torch.tensor([ids], device=pair.verifier.device)

    def ours() -> float:
        return seconds(lambda: generate(pair.verifier, ids, settings, np.random.default_rng(0)))

    def bare() -> float:
        """The same loop, nothing recorded."""

        def work() -> None:
            cached = CachedModel(pair.verifier)
            uniforms = torch.from_numpy(np.random.default_rng(0).random(N_TOKENS, dtype=np.float32))
            cached.prefill(tokens[0, :-1])
            feed = tokens[0, -1:]
            for index in range(N_TOKENS):
                warped = sampling.warp(cached.forward(feed, keep=1), WARP)
                feed = sampling.draw(warped.ids, warped.probabilities, uniforms[index : index + 1])
                feed.tolist()

        return seconds(work)

    def transformers_generate() -> float:
        return seconds(
            lambda: pair.verifier.module.generate(
                tokens,
                attention_mask=torch.ones_like(tokens),
                max_new_tokens=N_TOKENS,
                do_sample=True,
                temperature=WARP.temperature,
                top_p=WARP.top_p,
                top_k=0,
                eos_token_id=None,
                pad_token_id=0,
            )
        )

    figure("decode_vs_generate", median_ratio(transformers_generate, ours))
    figure("capture_cost", median_ratio(ours, bare))


if __name__ == "__main__":
    main()
