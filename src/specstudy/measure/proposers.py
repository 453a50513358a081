"""Who drafts. A proposer takes the text so far and gives tokens, each with the distribution that it was drawn from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from specstudy.measure import sampling
from specstudy.measure.sampling import Warp
from specstudy.models import device as devices
from specstudy.models.cache import CachedModel
from specstudy.models.device import Mark
from specstudy.models.load import LanguageModel

AdaptiveStop = Callable[[float], bool]


@dataclass(frozen=True)
class Proposal:
    """n drafted ids [n]; q [n, V] exactly as drawn from, and its entropy [n]; the draft's logits [n, K] before warping,
    of the K ids that it can give; `complete` [n] as in `Warped`.

    `forward_marks` lie around each forward pass. A stopped draft has seen one distribution more than it drew from.
    """

    ids: Tensor
    q: Tensor
    q_entropy_bits: Tensor
    logits: Tensor
    complete: Tensor
    stopped_early: bool
    forward_marks: list[tuple[Mark, Mark]]


def no_proposal(context: Tensor, vocabulary: int) -> Proposal:
    """Nothing drafted: the verifier takes a plain step."""
    none = torch.zeros(0, device=context.device)
    rows = none.view(0, 1).expand(0, vocabulary)
    return Proposal(context.new_zeros(0), rows, none, rows, none.bool(), False, [])


class Proposer(Protocol):
    """What the speculative loop asks of a draft."""

    @property
    def model(self) -> LanguageModel | None:
        """The model that drafts; None where none does."""
        ...

    def prefill(self, ids: Tensor) -> None:
        """See the prompt [P] except its last token."""
        ...

    def propose(self, context: Tensor, n: int, uniforms: Tensor, warp: Warp) -> Proposal:
        """Draft up to n tokens to follow context [L], the i-th drawn with uniforms[i]."""
        ...

    def keep(self, length: int) -> None:
        """Of what was seen, only the first `length` tokens are part of the text."""
        ...


def entropy_stop(threshold: float, n_emittable: int) -> AdaptiveStop:
    """Stop where the draft's normalised entropy reaches the threshold (mayankpallai 2026, part 3)."""
    most_bits = math.log2(n_emittable)
    return lambda entropy_bits: entropy_bits / most_bits >= threshold


def bound_stop(threshold: float) -> AdaptiveStop:
    """Stop where 1 - sqrt(0.2 * H), H the draft's entropy in nats, falls under the threshold (AdaEDL, Agrawal et
    al. 2024; SVIP, Zhang et al. 2024). A heuristic estimate of the acceptance, not a proven bound."""
    return lambda entropy_bits: 1.0 - math.sqrt(0.2 * entropy_bits * math.log(2)) < threshold


class ModelProposer:
    """A draft model with its own cache, which holds a prefix of the text; what is missing is fed on the next call."""

    def __init__(self, model: LanguageModel, stop: AdaptiveStop | None = None) -> None:
        self.cached = CachedModel(model)
        self._head_ids = model.head_ids()
        self._stop = stop

    @property
    def model(self) -> LanguageModel:
        return self.cached.model

    def prefill(self, ids: Tensor) -> None:
        self.cached.prefill(ids)

    def propose(self, context: Tensor, n: int, uniforms: Tensor, warp: Warp) -> Proposal:
        feed = context[self.cached.length :]
        ids, warps, seen, marks = [], [], [], []
        stopped = False
        for index in range(n):
            before = devices.mark(context.device)
            logits = self.cached.forward(feed, keep=1, among=self._head_ids)
            marks.append((before, devices.mark(context.device)))
            if index > 0 and self._stop and self._stop(float(sampling.raw_statistics(logits).entropy_bits)):
                stopped = True
                break
            warped = sampling.warp(logits, warp)
            drawn = sampling.draw(warped.ids, warped.probabilities, uniforms[index : index + 1])
            feed = drawn if self._head_ids is None else self._head_ids[drawn]
            ids.append(feed)
            warps.append(warped)
            seen.append(logits)
        if not ids:
            return no_proposal(context, self.cached.model.vocabulary)
        drawn_from = sampling.stacked(warps).over(self._head_ids)
        return Proposal(
            ids=torch.cat(ids),
            q=drawn_from.dense(self.cached.model.vocabulary),
            q_entropy_bits=drawn_from.entropy_bits(),
            logits=torch.cat(seen),
            complete=drawn_from.complete,
            stopped_early=stopped,
            forward_marks=marks,
        )

    def keep(self, length: int) -> None:
        self.cached.rollback(min(length, self.cached.length))
