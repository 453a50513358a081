"""Is the speculative engine exact on this pair, device and precision? Checked on rounds of real generations.

Cached logits of both models are compared with uncached forward passes after sampled rounds. A stale draft cache leaves
the text lossless and costs only acceptance, so nothing but the logits shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from specstudy.measure.decode import GenerationSettings, complete_warp, generate
from specstudy.measure.proposers import ModelProposer
from specstudy.measure.sampling import Warp
from specstudy.measure.speculative import Round, SpeculativeLoop
from specstudy.models.cache import CachedModel
from specstudy.models.load import LanguageModel, Pair

SAFETY = 2.0
SMALLEST_LIMIT = 1e-4
DISTRIBUTION_LEVEL = 1e-4
# A near tie in 16-bit precision: five tokens in one pass round differently from five passes.
NEAR_TIE = 0.5
STEP_TOKENS = 3


@dataclass(frozen=True)
class LogitCheck:
    """Cached against uncached logits of one model: the largest root mean square difference over the vocabulary after
    any round, against a limit of twice what rounding alone gives on the same text."""

    largest_rms_difference: float
    limit: float
    n_rounds: int

    @property
    def passed(self) -> bool:
        return self.largest_rms_difference <= self.limit


@dataclass(frozen=True)
class GreedyCheck:
    """Greedy speculative against greedy plain decoding; `top_two_gap` of the logits where they first part."""

    n_equal: int
    n_tokens: int
    top_two_gap: float | None

    @property
    def passed(self) -> bool:
        return self.top_two_gap is None or self.top_two_gap <= NEAR_TIE


@dataclass(frozen=True)
class DistributionCheck:
    """Kolmogorov-Smirnov test of emitted tokens against the verifier's own distribution, recomputed without a cache."""

    n_tokens: int
    p_value: float

    @property
    def passed(self) -> bool:
        return self.p_value >= DISTRIBUTION_LEVEL


@dataclass(frozen=True)
class SelfCheck:
    """All checks of one pair."""

    verifier_logits: LogitCheck
    draft_logits: LogitCheck
    greedy: GreedyCheck
    distribution: DistributionCheck

    @property
    def passed(self) -> bool:
        return all(c.passed for c in (self.verifier_logits, self.draft_logits, self.greedy, self.distribution))


@torch.inference_mode()
def uncached_logits(model: LanguageModel, ids: Tensor, keep: int) -> Tensor:
    """Float32 logits [keep, V] of the last `keep` of ids [S], from one pass that caches nothing."""
    output = model.module(input_ids=ids[None], use_cache=False, logits_to_keep=keep)
    return model.emittable_logits(output.logits[0])


def rms_difference(a: Tensor, b: Tensor) -> float:
    """Root mean square of a - b [V] where both are finite, less a shift of all logits: that changes no probability."""
    difference = (a - b)[torch.isfinite(a) & torch.isfinite(b)]
    return float((difference - difference.mean()).square().mean().sqrt())


@torch.inference_mode()
def rounding_differences(model: LanguageModel, text: Tensor, n_prompt: int, uncached: Tensor) -> list[float]:
    """What caching alone changes in this precision: a fresh cache, fed a few tokens at a time, nothing rolled back.

    `uncached` [T + 1, V] are the logits at the last prompt position and at every answer position.
    """
    cached = CachedModel(model)
    cached.prefill(text[: n_prompt - 1])
    return [
        rms_difference(cached.forward(text[cached.length : end], keep=1)[0], uncached[end - n_prompt])
        for end in range(n_prompt, len(text) + 1, STEP_TOKENS)
    ]


class _WatchedLoop(SpeculativeLoop):
    """A speculative loop that notes both models' next logits after every round: (length of the text, logits [V])."""

    def __init__(
        self, pair: Pair, prompt: Sequence[int], settings: GenerationSettings, gamma: int, rng: np.random.Generator
    ) -> None:
        self.draft = ModelProposer(pair.draft)
        super().__init__(pair.verifier, self.draft, prompt, settings, gamma, rng)
        self.seen: dict[str, list[tuple[int, Tensor]]] = {"verifier": [], "draft": []}

    def round(self, index: int, n: int) -> Round:
        result = super().round(index, n)
        for name, cached in (("verifier", self.verifier), ("draft", self.draft.cached)):
            held = cached.length
            self.seen[name].append((self.length, cached.forward(self.text[held : self.length], keep=1)[0]))
            cached.rollback(held)
        return result


def run_self_check(
    pair: Pair,
    prompts: Sequence[Sequence[int]],
    warp: Warp,
    gamma: int,
    generator: Callable[[int], np.random.Generator],
    n_tokens: int = 32,
) -> SelfCheck:
    """Check the engine on some prompts; `generator(i)` seeds prompt i."""
    settings = GenerationSettings(warp, n_tokens, pair.eos_ids)
    models = {"verifier": pair.verifier, "draft": pair.draft}
    found: dict[str, list[float]] = {name: [] for name in models}
    rounding: dict[str, list[float]] = {name: [] for name in models}
    places: list[float] = []
    for index, prompt in enumerate(prompts):
        rng = generator(index)
        loop = _WatchedLoop(pair, prompt, settings, gamma, rng)
        answer = loop.run().token_ids
        text = torch.tensor([*prompt, *answer], device=pair.verifier.device)
        for name, model in models.items():
            uncached = uncached_logits(model, text, keep=len(answer) + 1)
            found[name] += [rms_difference(logits, uncached[n - len(prompt)]) for n, logits in loop.seen[name]]
            rounding[name] += rounding_differences(model, text, len(prompt), uncached)
            if name == "verifier":
                places += probability_places(uncached[:-1], text[len(prompt) :], warp, rng)
    logit_checks = [
        LogitCheck(max(found[name]), max(SAFETY * max(rounding[name]), SMALLEST_LIMIT), len(found[name]))
        for name in models
    ]
    return SelfCheck(
        logit_checks[0],
        logit_checks[1],
        _greedy_check(pair, prompts[0], gamma, n_tokens),
        DistributionCheck(len(places), float(stats.kstest(places, "uniform").pvalue)),
    )


def probability_places(logits: Tensor, answer: Tensor, warp: Warp, rng: np.random.Generator) -> list[float]:
    """For each answer token [T] a number that is uniform on [0, 1] if it was drawn from the logits [T, V] before it.

    It lies in the token's own stretch of the cumulative distribution, at a random place (the randomised probability
    integral transform, Brockwell 2007).
    """
    warped = complete_warp(logits, warp)
    cumulative = warped.probabilities.cumsum(-1)
    chosen = (warped.ids == answer[:, None]).long()
    inside = chosen.sum(-1).tolist()
    at = chosen.argmax(-1, keepdim=True)
    top = cumulative.gather(-1, at)[:, 0].tolist()
    width = warped.probabilities.gather(-1, at)[:, 0].tolist()
    # A token outside the nucleus could not have been drawn: its place is beyond the end.
    return [t - w * float(rng.random()) if here else 1.0 for t, w, here in zip(top, width, inside, strict=True)]


def _greedy_check(pair: Pair, prompt: Sequence[int], gamma: int, n_tokens: int) -> GreedyCheck:
    settings = GenerationSettings(Warp(0.0, 1.0), n_tokens, pair.eos_ids)
    plain = generate(pair.verifier, prompt, settings, np.random.default_rng(0)).token_ids
    loop = SpeculativeLoop(pair.verifier, ModelProposer(pair.draft), prompt, settings, gamma, np.random.default_rng(0))
    speculative = loop.run().token_ids
    n_equal = next((i for i, (a, b) in enumerate(zip(plain, speculative, strict=False)) if a != b), len(plain))
    gap = None
    if n_equal < max(len(plain), len(speculative)):
        ids = torch.tensor([*prompt, *plain[:n_equal]], device=pair.verifier.device)
        top = uncached_logits(pair.verifier, ids, keep=1)[0].topk(2).values
        gap = float(top[0] - top[1])
    return GreedyCheck(n_equal, len(plain), gap)
