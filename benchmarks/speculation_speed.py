"""Speculative decoding, embedded pair: against `generate(assistant_model=...)`, and how much of it is overhead."""

from __future__ import annotations

import statistics

import numpy as np
import torch
from _common import REPEATS, embedded_pair, figure, median_ratio, prompt_ids, seconds

from specstudy.measure.decode import GenerationSettings
from specstudy.measure.proposers import ModelProposer
from specstudy.measure.sampling import Warp
from specstudy.measure.speculative import SpeculativeGeneration, SpeculativeLoop

N_TOKENS = 64
GAMMA = 4
WARP = Warp(0.7, 0.9)


def main() -> None:
    pair = embedded_pair()
    ids = prompt_ids(pair)
    settings = GenerationSettings(WARP, N_TOKENS, (), 5)
    tokens = torch.tensor([ids], device=pair.verifier.device)
    finished: list[SpeculativeGeneration] = []

    def ours() -> float:
        rng = np.random.default_rng(len(finished))
        loop = SpeculativeLoop(pair.verifier, ModelProposer(pair.draft), ids, settings, GAMMA, rng)
        return seconds(lambda: finished.append(loop.run()))

    def transformers_assisted() -> float:
        pair.draft.module.generation_config.num_assistant_tokens = GAMMA
        pair.draft.module.generation_config.num_assistant_tokens_schedule = "constant"
        pair.draft.module.generation_config.assistant_confidence_threshold = 0.0
        return seconds(
            lambda: pair.verifier.module.generate(
                tokens,
                attention_mask=torch.ones_like(tokens),
                assistant_model=pair.draft.module,
                max_new_tokens=N_TOKENS,
                do_sample=True,
                temperature=WARP.temperature,
                top_p=WARP.top_p,
                top_k=0,
                eos_token_id=None,
                pad_token_id=0,
            )
        )

    figure("spec_vs_assisted", median_ratio(transformers_assisted, ours, REPEATS))
    shares = []
    for generation in finished:
        draft_s, verify_s, overhead_s = (
            sum(getattr(r, name) for r in generation.rounds) for name in ("draft_s", "verify_s", "overhead_s")
        )
        shares.append(overhead_s / (draft_s + verify_s + overhead_s))
    figure("overhead_share", statistics.median(shares))


if __name__ == "__main__":
    main()
