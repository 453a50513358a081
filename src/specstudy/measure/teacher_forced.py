"""The draft on the verifier's text: how sure it is before each token, and how likely its proposal is accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specstudy.measure import sampling
from specstudy.measure.finite import not_finite_error
from specstudy.measure.sampling import Warp, Warped
from specstudy.measure.sinks import BLOCK_TOKENS
from specstudy.models.cache import CachedModel
from specstudy.models.load import Pair


@dataclass(frozen=True)
class TeacherForced:
    """The draft over the verifier's answer, token by token [T]."""

    draft_entropy_bits: list[float] = field(default_factory=list)
    draft_top_prob: list[float] = field(default_factory=list)
    draft_top_margin: list[float] = field(default_factory=list)
    expected_accept: list[float] = field(default_factory=list)


@torch.inference_mode()
def teacher_forced(
    pair: Pair,
    prompt_ids: Sequence[int],
    answer_ids: Sequence[int],
    warp: Warp,
    draft_warp: Warp | None = None,
    verifier: CachedModel | None = None,
) -> TeacherForced:
    """The draft's certainty and sum_x min(p(x), q(x)) before each answer token; both are fed the text in blocks.

    `verifier` may hold the prompt already, so that it need not be fed again.
    """
    device = pair.verifier.device
    ids = torch.tensor([*prompt_ids, *answer_ids[:-1]], device=device)
    verifier, draft = verifier or CachedModel(pair.verifier), CachedModel(pair.draft)
    first = len(prompt_ids) - 1
    for cached in (verifier, draft):
        cached.rollback(min(first, cached.length))
        cached.prefill(ids[cached.length : first])
    forced = TeacherForced()
    for start in range(first, len(ids), BLOCK_TOKENS):
        block = ids[start : start + BLOCK_TOKENS]
        p_logits = verifier.forward(block, keep=len(block))
        q_logits = draft.forward(block, keep=len(block))
        raw = sampling.raw_statistics(q_logits)
        if not bool(raw.finite.all()):
            raise not_finite_error(pair.draft, ids[: start + len(block)])
        p, q = complete_warp(p_logits, warp), complete_warp(q_logits, draft_warp or warp)
        first_prob, second_prob = sampling.top_two(q_logits, raw.log_normalizer)
        forced.draft_entropy_bits.extend(raw.entropy_bits.tolist())
        forced.draft_top_prob.extend(first_prob.tolist())
        forced.draft_top_margin.extend((first_prob - second_prob).tolist())
        q_there = q.dense(pair.draft.vocabulary).gather(-1, p.ids)
        forced.expected_accept.extend(sampling.expected_acceptance(p.probabilities, q_there).tolist())
    return forced


def complete_warp(logits: Tensor, warp: Warp) -> Warped:
    """Warped distributions, among as many candidates as hold every nucleus. Waits for the device."""
    warp = warp.widened()  # of many rows one is less certain
    warped = sampling.warp(logits, warp)
    while not bool(warped.complete.all()):
        warp = warp.widened()
        warped = sampling.warp(logits, warp)
    return warped
