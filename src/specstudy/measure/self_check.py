"""Is the speculative engine exact on this pair, device and precision? Checked on rounds of real generations.

The logits that both models worked with are compared with uncached forward passes over the finished text. A stale draft
cache leaves the text lossless and costs only acceptance, so nothing but the logits shows it. What these passes rest on
is checked on its own: their attention, against plain arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from specstudy.measure import rounding
from specstudy.measure.check_outcomes import AttentionCheck, DistributionCheck, GreedyCheck, SelfCheck
from specstudy.measure.checked_texts import MOST_TOKENS
from specstudy.measure.decode import generate
from specstudy.measure.logit_differences import (
    Comparison,
    Seen,
    compare,
    largest_of,
    logit_check,
    n_beyond,
    smallest_scale,
    uncached_logits,
)
from specstudy.measure.sampling import Warp
from specstudy.measure.speculation_records import SpeculationSettings, make_proposer
from specstudy.measure.speculative import SpeculativeLoop
from specstudy.measure.teacher_forced import complete_warp
from specstudy.models.attention_check import attention_errors
from specstudy.models.load import LanguageModel, Pair

FEWEST_ATTENDED = 128


def run_self_check(
    pair: Pair,
    prompts: Sequence[Sequence[int]],
    settings: Sequence[SpeculationSettings],
    generator: Callable[[int], np.random.Generator],
) -> SelfCheck:
    """Check the engine with every one of the settings in use, each on one of the prompts in turn, and every prompt at
    least once; `generator(i)` seeds the i-th generation.

    One condition more has gamma 1: there even a weak draft meets rejections and full acceptances within a few rounds.
    """
    shortened = [_shortened(how) for how in (*settings, replace(settings[0], gamma=1))]
    compared: dict[str, list[Comparison]] = {"verifier": [], "draft": []}
    places: list[float] = []
    for index in range(max(len(prompts), len(shortened))):
        prompt, how = prompts[index % len(prompts)], shortened[index % len(shortened)]
        rng = generator(index)
        proposer = make_proposer(pair, how)
        answer, seen = _watched(SpeculativeLoop(pair.verifier, proposer, prompt, how.generation, how.gamma, rng))
        text = torch.tensor([*prompt, *answer], device=pair.verifier.device)
        models = [("verifier", pair.verifier, how.gamma + 1)]
        if proposer.model and seen["draft"]:
            models.append(("draft", proposer.model, 1))
        for name, model, n_at_once in models:
            uncached = uncached_logits(model, text, keep=len(answer) + 1)
            compared[name].append(compare(model, text, len(prompt), uncached, seen[name], n_at_once))
            if name == "verifier":
                places += probability_places(uncached[:-1], text[len(prompt) :], how.generation.warp, rng)
    single_logit = largest_of([largest for c in compared["verifier"] for largest, _ in c.rounding])
    # Rounding turns the order of two logits at most where both move by half of their gap.
    gap = rounding.limit(pair.verifier.dtype, 2 * single_logit, smallest_scale(compared["verifier"]), rounding.GAP)
    return SelfCheck(
        logit_check(compared["verifier"]),
        logit_check(compared["draft"]) if compared["draft"] else None,
        _greedy_check(pair, prompts[0], shortened[0], gap),
        DistributionCheck(len(places), float(stats.kstest(places, "uniform").pvalue)),
        _attention_check(pair, max(prompts, key=len), shortened[0].gamma + 1),
    )


def _shortened(settings: SpeculationSettings) -> SpeculationSettings:
    """Few tokens, but all of them: a text that ended would not reach what it was chosen for."""
    n_tokens = min(settings.generation.max_new_tokens, MOST_TOKENS)
    return replace(settings, generation=replace(settings.generation, max_new_tokens=n_tokens, eos_ids=()))


def _watched(loop: SpeculativeLoop) -> tuple[list[int], dict[str, Seen]]:
    """A generation's tokens, and the logits that both models decided by, wherever they follow the finished text."""
    tokens: list[int] = []
    seen: dict[str, Seen] = {"verifier": [], "draft": []}
    loop.prefill()
    for finished in loop.rounds():
        start = loop.length - len(finished.emitted)
        verifier_logits, proposal = loop.decided_by
        # What follows a rejected token is no prefix of the text.
        for name, logits in (("verifier", verifier_logits), ("draft", proposal.logits)):
            seen[name] += [(start + i, row) for i, row in enumerate(logits[: finished.n_accepted + 1])]
        tokens += finished.emitted
    return tokens, seen


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


def _greedy_check(pair: Pair, prompt: Sequence[int], settings: SpeculationSettings, limit_gap: float) -> GreedyCheck:
    greedy = replace(settings.generation, warp=Warp(0.0, 1.0))
    plain = generate(pair.verifier, prompt, greedy, np.random.default_rng(0)).token_ids
    loop = SpeculativeLoop(
        pair.verifier, make_proposer(pair, settings), prompt, greedy, settings.gamma, np.random.default_rng(0)
    )
    speculative = loop.run().token_ids
    gaps = [gap for answer in {tuple(plain), tuple(speculative)} for gap in _gaps(pair.verifier, prompt, answer)]
    return GreedyCheck(
        n_equal=next((i for i, (a, b) in enumerate(zip(plain, speculative, strict=False)) if a != b), len(plain)),
        n_tokens=len(plain),
        largest_gap=largest_of(gaps),
        limit_gap=limit_gap,
        n_beyond_limit=n_beyond(gaps, limit_gap),
        n_tolerated=rounding.n_may_lie_beyond(pair.verifier, len(gaps)),
    )


def _gaps(verifier: LanguageModel, prompt: Sequence[int], answer: Sequence[int]) -> list[float]:
    """How far the logit of each answer token is below the largest of an uncached pass."""
    text = torch.tensor([*prompt, *answer], device=verifier.device)
    logits = uncached_logits(verifier, text, keep=len(answer) + 1)[:-1]
    gaps: list[float] = (logits.amax(-1) - logits.gather(-1, text[len(prompt) :, None])[:, 0]).tolist()
    return gaps


def _attention_check(pair: Pair, prompt: Sequence[int], n_rows: int) -> AttentionCheck | None:
    n_tokens = min(max(len(prompt), FEWEST_ATTENDED), pair.context_length or FEWEST_ATTENDED)
    text = [*prompt] * (1 + n_tokens // len(prompt))  # which tokens these are makes no difference
    ids = torch.tensor(text[:n_tokens], device=pair.verifier.device)
    errors = [error for model in (pair.verifier, pair.draft) for error in attention_errors(model, ids, n_rows)]
    limit = rounding.ATTENTION_LIMITS[pair.verifier.dtype]
    return AttentionCheck(largest_of(errors), limit, len(errors)) if errors else None
