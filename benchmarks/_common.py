"""What the benchmarks share: the embedded pair, a prompt, interleaved timing, and the lines they print."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import transformers
from _processes import figure as figure

from specstudy.config import ModelsConfig, local_path
from specstudy.measure.decode import GenerationSettings, generate
from specstudy.measure.proposers import ModelProposer
from specstudy.measure.sampling import Warp
from specstudy.measure.speculative import Round, SpeculativeGeneration, SpeculativeLoop
from specstudy.models.device import choose_device, choose_dtype, now_s
from specstudy.models.load import Pair, load_pair
from specstudy.prompts import read_prompts, render, select

REPEATS = 9


def embedded_pair(*, pack: bool = True) -> Pair:
    """The default models on the default device, all cores."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    models = ModelsConfig()
    device = choose_device("auto")
    return load_pair(models.verifier, str(local_path(models.draft)), device, choose_dtype("auto", device), pack=pack)


def as_transformers_runs_it() -> Pair:
    """The embedded pair with the library's own attention and linear layers."""
    pair = embedded_pair(pack=False)
    for model in (pair.verifier, pair.draft):
        model.module.set_attn_implementation("sdpa")
    return pair


def prompt_ids(pair: Pair, prompt_id: str = "factual-05") -> list[int]:
    """A study prompt as the model sees it."""
    prompts = {p.prompt_id: p for p in read_prompts(local_path("data/prompts/study50.jsonl"))}
    return render(prompts[prompt_id], pair.tokenizer).token_ids


def study_prompts(pair: Pair, per_category: int) -> list[list[int]]:
    """So many study prompts of each category, the shortest among them, as the model sees them."""
    prompts = select(read_prompts(local_path("data/prompts/study50.jsonl")), None, per_category)
    return [render(prompt, pair.tokenizer).token_ids for prompt in prompts]


def alone_per_s(pair: Pair, ids: list[int], settings: GenerationSettings, seed: int) -> float:
    """Tokens per second of the verifier alone, after prefill."""
    generation = generate(pair.verifier, ids, settings, np.random.default_rng(seed))
    return len(generation.steps) / generation.decode_s


def speculated(
    pair: Pair, ids: list[int], settings: GenerationSettings, gamma: int, seed: int
) -> SpeculativeGeneration:
    """One speculative generation."""
    rng = np.random.default_rng(seed)
    return SpeculativeLoop(pair.verifier, ModelProposer(pair.draft), ids, settings, gamma, rng).run()


def generated_by_transformers(pair: Pair, ids: list[int], warp: Warp, n_tokens: int, **how: Any) -> None:
    """`generate()` on the same weights, prompt and sampling, nothing ending it early; `how` goes to it as it is."""
    tokens = torch.tensor([ids], device=pair.verifier.device)
    pair.verifier.module.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=n_tokens,
        do_sample=True,
        temperature=warp.temperature,
        top_p=warp.top_p,
        top_k=0,
        eos_token_id=None,
        pad_token_id=0,
        **how,
    )


def overhead_share(rounds: Sequence[Round]) -> float:
    """Share of these rounds' time that is neither forward passes of the draft nor the verifier's."""
    overhead_s = sum(r.overhead_s for r in rounds)
    return overhead_s / sum(r.draft_s + r.verify_s + r.overhead_s for r in rounds)


def median_ratio(a: Callable[[], float], b: Callable[[], float], repeats: int = REPEATS) -> float:
    """Median of a() / b() over `repeats` pairs, taken in turn after one pair that does not count."""
    a(), b()
    return statistics.median(a() / b() for _ in range(repeats))


@contextmanager
def replaced(owner: type, **methods: Any) -> Iterator[None]:
    """Within this block, `owner` has other methods."""
    before = {name: getattr(owner, name) for name in methods}
    for name, method in methods.items():
        setattr(owner, name, method)
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(owner, name, method)


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes."""
    device = choose_device("auto")
    before_s = now_s(device)
    with torch.inference_mode():
        work()
    return now_s(device) - before_s
