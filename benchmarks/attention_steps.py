"""What the attention of every generating query costs: time of the decode stage with it over without, peak memory.

`attention_steps.py SIDE N_TOKENS` is a process of its own that prints its peak MiB: `prefill` scores a prompt of so
many tokens as the prefill stage does, `without` and `with` pass an answer behind it, without the steps and with them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from _common import embedded_pair, figure, seconds
from _processes import peak_mib

from specstudy.config import local_path
from specstudy.measure.attention_while_writing import attention_to_text, step_columns
from specstudy.measure.decode import GenerationSettings, generate_rows, measure_decode
from specstudy.measure.sampling import Warp
from specstudy.measure.sinks import answer_sums, prefill_sums
from specstudy.models.attention_steps import GeneratingQueries
from specstudy.models.cache import CachedModel
from specstudy.models.load import LanguageModel, Pair
from specstudy.prompts import read_prompts, render
from specstudy.prompts.prompt import RenderedPrompt

ANSWERS, ANSWER_TOKENS = 3, 128
PROMPTS = ("factual-01", "math-06", "creative-10")
LONG_TOKENS = 4096
REPEATS = 5
WARP = Warp(0.7, 0.9)


def steps_s(pair: Pair, rendered: RenderedPrompt, answers: list[list[int]]) -> tuple[float, float]:
    """Seconds of the passes over the answers with the steps, their columns included, and without."""
    cached = CachedModel(pair.verifier)
    cached.prefill(torch.tensor(rendered.token_ids))

    def with_steps() -> None:
        for answer in answers:
            steps = attention_to_text(cached, rendered, answer).steps
            assert steps is not None
            step_columns(steps, rendered)

    def without() -> None:
        for answer in answers:
            answer_sums(cached, rendered.token_ids, answer)

    return seconds(with_steps), seconds(without)


def stage_growth(pair: Pair, rendered: RenderedPrompt) -> float:
    """Time of the decode stage of a prompt over that of the same without the steps: medians of several runs."""
    settings = GenerationSettings(WARP, ANSWER_TOKENS, pair.eos_ids)

    def rngs() -> list[np.random.Generator]:
        return [np.random.default_rng(seed) for seed in range(ANSWERS)]

    answers = [a.token_ids for a in generate_rows(pair.verifier, rendered.token_ids, settings, rngs())]
    stage = seconds(lambda: measure_decode(pair, rendered, settings, rngs()))
    with_s, without_s = np.median([steps_s(pair, rendered, answers) for _ in range(REPEATS)], axis=0)
    return float(stage / (stage - (with_s - without_s)))


def passes(side: str, verifier: LanguageModel, n_tokens: int) -> None:
    """One side's work on ids that say nothing."""
    ids: list[int] = np.random.default_rng(0).integers(verifier.vocabulary, size=n_tokens).tolist()
    if side == "prefill":
        prefill_sums(verifier, ids, 16)
        return
    cached = CachedModel(verifier)
    cached.prefill(torch.tensor(ids))
    queries = GeneratingQueries(torch.ones(n_tokens, dtype=torch.bool)) if side == "with" else None
    answer_sums(cached, ids, ids[:ANSWER_TOKENS], queries)


def main() -> None:
    if len(sys.argv) > 1:
        passes(sys.argv[1], embedded_pair().verifier, int(sys.argv[2]))
        print(peak_mib())
        return
    for side in ("prefill", "without", "with"):
        command = [sys.executable, str(Path(__file__)), side, str(LONG_TOKENS)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        figure(f"attention_steps_{side}_peak_mib", float(output.split()[-1]))
    pair = embedded_pair()
    prompts = {p.prompt_id: p for p in read_prompts(local_path("data/prompts/study50.jsonl"))}
    for prompt_id in PROMPTS:
        rendered = render(prompts[prompt_id], pair.tokenizer)
        figure(f"decode_stage_growth_{len(rendered.positions)}_tokens", stage_growth(pair, rendered))


if __name__ == "__main__":
    main()
