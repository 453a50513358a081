"""Speculative decoding against transformers' assisted generation: tokens per second, and where a round's time goes.

Both sample, and how many drafts are accepted is luck: so each side generates from one prompt of every category, with
another seed in each repetition, and whole sets are compared.
"""

from __future__ import annotations

import itertools
import statistics

import torch
from _common import (
    as_transformers_runs_it,
    embedded_pair,
    figure,
    generated_by_transformers,
    median_ratio,
    overhead_share,
    seconds,
    speculated,
    study_prompts,
)

from specstudy.measure.decode import GenerationSettings
from specstudy.measure.sampling import Warp
from specstudy.measure.speculative import SpeculativeGeneration

N_TOKENS = 64
GAMMA = 4
WARP = Warp(0.7, 0.9)
REPEATS = 5


def main() -> None:
    pair = embedded_pair()
    theirs = as_transformers_runs_it()
    prompts = study_prompts(pair, 1)
    settings = GenerationSettings(WARP, N_TOKENS, (), 5)
    finished: list[SpeculativeGeneration] = []
    seeds, their_seeds = itertools.count(), itertools.count()

    def ours() -> float:
        seed = next(seeds)
        return seconds(lambda: finished.extend(speculated(pair, ids, settings, GAMMA, seed) for ids in prompts))

    def transformers_assisted() -> float:
        how = theirs.draft.module.generation_config
        how.num_assistant_tokens, how.num_assistant_tokens_schedule = GAMMA, "constant"
        how.assistant_confidence_threshold = 0.0
        torch.manual_seed(next(their_seeds))

        def work() -> None:
            for ids in prompts:
                generated_by_transformers(theirs, ids, WARP, N_TOKENS, assistant_model=theirs.draft.module)

        return seconds(work)

    figure("spec_vs_assisted", median_ratio(transformers_assisted, ours, REPEATS))
    figure("overhead_share", statistics.median(overhead_share(generation.rounds) for generation in finished))


if __name__ == "__main__":
    main()
