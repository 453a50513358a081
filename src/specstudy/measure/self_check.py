"""Is the speculative engine exact on this pair, device and precision? Checked on rounds of real generations.

The logits that both models worked with are compared with uncached forward passes over the finished text. A stale draft
cache leaves the text lossless and costs only acceptance, so nothing but the logits shows it. What these passes rest on
is checked on its own: their attention, against plain arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from transformers import DynamicCache

from specstudy.measure import rounding
from specstudy.measure.checked_texts import MOST_TOKENS
from specstudy.measure.decode import complete_warp, generate
from specstudy.measure.sampling import Warp
from specstudy.measure.speculation_records import SpeculationSettings, make_proposer
from specstudy.measure.speculative import SpeculativeLoop
from specstudy.models.attention_check import attention_errors
from specstudy.models.load import LanguageModel, Pair

DISTRIBUTION_LEVEL = 1e-4
FEWEST_ATTENDED = 128


@dataclass(frozen=True)
class LogitCheck:
    """Cached against uncached logits of one model in `n_logits` places: the largest difference of a single logit, and
    the largest root mean square difference over the vocabulary, against what rounding explains (`measure.rounding`);
    in how many places it is beyond that, and in how many it may be."""

    largest_difference: float
    largest_rms_difference: float
    limit_rms: float
    n_logits: int
    n_beyond_limit: int
    n_tolerated: int

    @property
    def passed(self) -> bool:
        return self.n_beyond_limit <= self.n_tolerated


@dataclass(frozen=True)
class GreedyCheck:
    """Greedy decoding, speculative and plain: `n_equal` tokens until they part. Both are held against uncached passes:
    how far a token's logit is below the largest, at most, against what rounding explains."""

    n_equal: int
    n_tokens: int
    largest_gap: float
    limit_gap: float
    n_beyond_limit: int
    n_tolerated: int

    @property
    def passed(self) -> bool:
        return self.n_beyond_limit <= self.n_tolerated


@dataclass(frozen=True)
class AttentionCheck:
    """The attention that both models run with against explicit attention in float32, in prefill and cached passes:
    the largest error of `n_compared`, as a share of the values."""

    largest_error: float
    limit_error: float
    n_compared: int

    @property
    def passed(self) -> bool:
        return self.largest_error <= self.limit_error


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
    """All checks of one pair. `draft_logits` is None where nothing is drafted by a model, `attention` where no model
    runs a kernel."""

    verifier_logits: LogitCheck
    draft_logits: LogitCheck | None
    greedy: GreedyCheck
    distribution: DistributionCheck
    attention: AttentionCheck | None

    @property
    def passed(self) -> bool:
        return all(check.passed for check in vars(self).values() if check)

    def report(self) -> dict[str, Any]:
        """Every number as plain nested values, each check with its verdict."""
        checks = {name: check for name, check in vars(self).items() if check}
        return {
            "passed": self.passed,
            **{name: {"passed": check.passed, **_storable(asdict(check))} for name, check in checks.items()},
        }

    def summary(self) -> dict[str, Any]:
        """What decided, as one check."""
        draft = self.draft_logits
        values = {
            "verifier_rms": self.verifier_logits.largest_rms_difference,
            "limit_rms": self.verifier_logits.limit_rms,
            "draft_rms": draft.largest_rms_difference if draft else None,
            "draft_limit_rms": draft.limit_rms if draft else None,
            "n_greedy_equal": self.greedy.n_equal,
            "greedy_gap": self.greedy.largest_gap,
            "limit_gap": self.greedy.limit_gap,
            "distribution_p_value": self.distribution.p_value,
            "attention_error": self.attention.largest_error if self.attention else None,
        }
        return {"passed": self.passed, **_storable(values)}


def _storable(values: dict[str, Any]) -> dict[str, Any]:
    """Numbers that are not finite as null, which JSON knows, and their names under `not_finite`, if there are any."""
    not_finite = [name for name, value in values.items() if value is not None and not np.isfinite(value)]
    told = {"not_finite": not_finite} if not_finite else {}
    return {**values, **dict.fromkeys(not_finite), **told}


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
    compared: dict[str, list[_Comparison]] = {"verifier": [], "draft": []}
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
            compared[name].append(_compare(model, text, len(prompt), uncached, seen[name], n_at_once))
            if name == "verifier":
                places += probability_places(uncached[:-1], text[len(prompt) :], how.generation.warp, rng)
    single_logit = _largest([largest for c in compared["verifier"] for largest, _ in c.rounding])
    # Rounding turns the order of two logits at most where both move by half of their gap.
    gap = rounding.limit(pair.verifier.dtype, 2 * single_logit, _scale(compared["verifier"]), rounding.GAP)
    return SelfCheck(
        _logit_check(compared["verifier"]),
        _logit_check(compared["draft"]) if compared["draft"] else None,
        _greedy_check(pair, prompts[0], shortened[0], gap),
        DistributionCheck(len(places), float(stats.kstest(places, "uniform").pvalue)),
        _attention_check(pair, max(prompts, key=len), shortened[0].gamma + 1),
    )


def _shortened(settings: SpeculationSettings) -> SpeculationSettings:
    """Few tokens, but all of them: a text that ended would not reach what it was chosen for."""
    n_tokens = min(settings.generation.max_new_tokens, MOST_TOKENS)
    return replace(settings, generation=replace(settings.generation, max_new_tokens=n_tokens, eos_ids=()))


@torch.inference_mode()
def uncached_logits(model: LanguageModel, ids: Tensor, keep: int) -> Tensor:
    """Float32 logits [keep, V] of the last `keep` of ids [S], from one pass that caches nothing."""
    output = model.module(input_ids=ids[None], use_cache=False, logits_to_keep=keep)
    return model.emittable_logits(output.logits[0])


def differences(a: Tensor, b: Tensor) -> tuple[float, float]:
    """Largest absolute and root mean square of a - b [V] less a shift of all logits, which changes no probability.

    Ids masked in both (minus infinity) do not count; any other logit that is not finite makes the result so too.
    """
    difference = (a - b)[~(torch.isneginf(a) & torch.isneginf(b))]
    difference = difference - difference.mean()
    return float(difference.abs().max()), float(difference.square().mean().sqrt())


@torch.inference_mode()
def rounding_differences(
    model: LanguageModel, text: Tensor, n_prompt: int, uncached: Tensor, n_at_once: int
) -> list[tuple[float, float]]:
    """What caching alone changes in this precision: the library's own cache, fed `n_at_once` tokens of the answer at a
    time, nothing taken back.

    `uncached` [T + 1, V] are the logits at the last prompt position and at every answer position.
    """
    cache = DynamicCache(config=model.module.config)
    first = n_prompt - 1
    if first:
        model.module(input_ids=text[None, :first], cache=cache, use_cache=True, logits_to_keep=1)
    found = []
    for start in range(first, len(text), n_at_once):
        output = model.module(input_ids=text[None, start : start + n_at_once], cache=cache, use_cache=True)
        rows = model.emittable_logits(output.logits[0])
        found += [differences(row, uncached[start - first + i]) for i, row in enumerate(rows)]
    return found


Seen = list[tuple[int, Tensor]]


def _watched(loop: SpeculativeLoop) -> tuple[list[int], dict[str, Seen]]:
    """A generation's tokens, and the logits that both models decided by, wherever they follow the finished text:
    (tokens before, [V], a draft's [K] of the ids that its head can give)."""
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


@dataclass(frozen=True)
class _Comparison:
    """(largest, root mean square) differences of one model on one text: of the engine's logits, and by rounding; and
    the standard deviation of its logits over the vocabulary."""

    model: LanguageModel
    engine: list[tuple[float, float]]
    rounding: list[tuple[float, float]]
    scale: float


def _compare(
    model: LanguageModel, text: Tensor, n_prompt: int, uncached: Tensor, seen: Seen, n_at_once: int
) -> _Comparison:
    return _Comparison(
        model,
        [differences(_among_all(logits, model), uncached[n - n_prompt]) for n, logits in seen],
        rounding_differences(model, text, n_prompt, uncached, n_at_once),
        _standard_deviation(uncached),
    )


def _standard_deviation(logits: Tensor) -> float:
    """Of logits [T, V] over the ids that can be emitted, mean over T. NaN if one of them is not finite."""
    rows = [row[~torch.isneginf(row)] for row in logits]
    return float(torch.stack([(row - row.mean()).square().mean().sqrt() for row in rows]).mean())


def _among_all(logits: Tensor, model: LanguageModel) -> Tensor:
    """Logits [K] of the ids that a model's head can give among those of all ids [V], minus infinity elsewhere."""
    ids = model.head_ids()
    return logits if ids is None else logits.new_full((model.vocabulary,), -torch.inf).index_copy(0, ids, logits)


def _logit_check(comparisons: Sequence[_Comparison]) -> LogitCheck:
    engine = [pair for comparison in comparisons for pair in comparison.engine]
    by_rounding = _largest([rms for comparison in comparisons for _, rms in comparison.rounding])
    limit = rounding.limit(comparisons[0].model.dtype, by_rounding, _scale(comparisons))
    return LogitCheck(
        largest_difference=_largest([largest for largest, _ in engine]),
        largest_rms_difference=_largest([rms for _, rms in engine]),
        limit_rms=limit,
        n_logits=len(engine),
        n_beyond_limit=_n_beyond([rms for _, rms in engine], limit),
        n_tolerated=sum(rounding.n_may_lie_beyond(c.model, len(c.engine)) for c in comparisons),
    )


def _scale(comparisons: Sequence[_Comparison]) -> float:
    """The smallest standard deviation, NaN if one of them is NaN."""
    return float(np.min([comparison.scale for comparison in comparisons]))


def _n_beyond(values: Sequence[float], limit: float) -> int:
    return sum(not value <= limit for value in values)  # NaN is beyond everything


def _largest(values: Sequence[float]) -> float:
    """Their maximum, NaN if one of them is NaN, which `max` would lose."""
    return float(np.max(values))


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
        largest_gap=_largest(gaps),
        limit_gap=limit_gap,
        n_beyond_limit=_n_beyond(gaps, limit_gap),
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
    return AttentionCheck(_largest(errors), limit, len(errors)) if errors else None
