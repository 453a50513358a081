"""Speculative decoding, embedded pair: against `generate(assistant_model=...)`, and how much of it is overhead."""

from __future__ import annotations

import statistics

import numpy as np
from _common import (
    REPEATS,
    embedded_pair,
    figure,
    generated_by_transformers,
    median_ratio,
    overhead_share,
    prompt_ids,
    seconds,
)

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
    finished: list[SpeculativeGeneration] = []

    def ours() -> float:
        rng = np.random.default_rng(len(finished))
        loop = SpeculativeLoop(pair.verifier, ModelProposer(pair.draft), ids, settings, GAMMA, rng)
        return seconds(lambda: finished.append(loop.run()))

    def transformers_assisted() -> float:
        pair.draft.module.generation_config.num_assistant_tokens = GAMMA
        pair.draft.module.generation_config.num_assistant_tokens_schedule = "constant"
        pair.draft.module.generation_config.assistant_confidence_threshold = 0.0
        return seconds(lambda: generated_by_transformers(pair, ids, WARP, N_TOKENS, assistant_model=pair.draft.module))

    figure("spec_vs_assisted", median_ratio(transformers_assisted, ours, REPEATS))
    figure("overhead_share", statistics.median(overhead_share(generation.rounds) for generation in finished))


if __name__ == "__main__":
    main()
