"""Cached against uncached logits: how far the engine's differ, and how far rounding alone moves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from specstudy.measure import rounding
from specstudy.measure.check_outcomes import LogitCheck
from specstudy.models.load import LanguageModel

Seen = list[tuple[int, Tensor]]
"""Logits [V] of a model, or a draft's [K] of the ids that its head can give, each with the number of tokens before."""


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


@dataclass(frozen=True)
class Comparison:
    """(largest, root mean square) differences of one model on one text: of the engine's logits, and by rounding; and
    the standard deviation of its logits over the vocabulary."""

    model: LanguageModel
    engine: list[tuple[float, float]]
    rounding: list[tuple[float, float]]
    scale: float


def compare(
    model: LanguageModel, text: Tensor, n_prompt: int, uncached: Tensor, seen: Seen, n_at_once: int
) -> Comparison:
    """The engine's logits that were `seen`, against uncached ones as in `rounding_differences`."""
    return Comparison(
        model,
        [differences(_among_all(logits, model), uncached[n - n_prompt]) for n, logits in seen],
        rounding_differences(model, text, n_prompt, uncached, n_at_once),
        _standard_deviation(uncached),
    )


def logit_check(comparisons: Sequence[Comparison]) -> LogitCheck:
    """The check of one model over several texts."""
    engine = [pair for comparison in comparisons for pair in comparison.engine]
    by_rounding = largest_of([rms for comparison in comparisons for _, rms in comparison.rounding])
    limit = rounding.limit(comparisons[0].model.dtype, by_rounding, smallest_scale(comparisons))
    return LogitCheck(
        largest_difference=largest_of([largest for largest, _ in engine]),
        largest_rms_difference=largest_of([rms for _, rms in engine]),
        limit_rms=limit,
        n_logits=len(engine),
        n_beyond_limit=n_beyond([rms for _, rms in engine], limit),
        n_tolerated=sum(rounding.n_may_lie_beyond(c.model, len(c.engine)) for c in comparisons),
    )


def _standard_deviation(logits: Tensor) -> float:
    """Of logits [T, V] over the ids that can be emitted, mean over T. NaN if one of them is not finite."""
    rows = [row[~torch.isneginf(row)] for row in logits]
    return float(torch.stack([(row - row.mean()).square().mean().sqrt() for row in rows]).mean())


def _among_all(logits: Tensor, model: LanguageModel) -> Tensor:
    """Logits [K] of the ids that a model's head can give among those of all ids [V], minus infinity elsewhere."""
    ids = model.head_ids()
    return logits if ids is None else logits.new_full((model.vocabulary,), -torch.inf).index_copy(0, ids, logits)


def smallest_scale(comparisons: Sequence[Comparison]) -> float:
    """The smallest standard deviation, NaN if one of them is NaN."""
    return float(np.min([comparison.scale for comparison in comparisons]))


def n_beyond(values: Sequence[float], limit: float) -> int:
    """How many are beyond a limit; NaN always is."""
    return sum(not value <= limit for value in values)


def largest_of(values: Sequence[float]) -> float:
    """Their maximum, NaN if one of them is NaN, which `max` would lose."""
    return float(np.max(values))
