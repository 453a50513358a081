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
    """n drafted ids [n]; q [n, V] exactly as drawn from; the draft's logits [n, V] before warping; flags [n].

    `forward_marks` lie around each forward pass. A stopped draft has seen one distribution more than it drew from.
    """

    ids: Tensor
    q: Tensor
    logits: Tensor
    complete: Tensor
    stopped_early: bool
    forward_marks: list[tuple[Mark, Mark]]


class Proposer(Protocol):
    """What the speculative loop asks of a draft."""

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
    """Stop where the draft's normalised entropy reaches the threshold (the series' rule)."""
    most_bits = math.log2(n_emittable)
    return lambda entropy_bits: entropy_bits / most_bits >= threshold


def bound_stop(threshold: float) -> AdaptiveStop:
    """Stop where 1 - sqrt(0.2 * H), H the draft's entropy in nats, falls under the threshold (AdaEDL, arXiv 2410.18351;
    SVIP, arXiv 2411.18462). A heuristic estimate of the acceptance, not a proven bound."""
    return lambda entropy_bits: 1.0 - math.sqrt(0.2 * entropy_bits * math.log(2)) < threshold


class ModelProposer:
    """A draft model with its own cache, which holds a prefix of the text; what is missing is fed on the next call."""

    def __init__(self, model: LanguageModel, stop: AdaptiveStop | None = None) -> None:
        self.cached = CachedModel(model)
        self._stop = stop

    def prefill(self, ids: Tensor) -> None:
        self.cached.prefill(ids)

    def propose(self, context: Tensor, n: int, uniforms: Tensor, warp: Warp) -> Proposal:
        feed = context[self.cached.length :]
        ids, distributions, logits_seen, complete, marks = [], [], [], [], []
        stopped = False
        for index in range(n):
            before = devices.mark(context.device)
            logits = self.cached.forward(feed, keep=1)
            marks.append((before, devices.mark(context.device)))
            if index > 0 and self._stop and self._stop(float(sampling.raw_statistics(logits).entropy_bits)):
                stopped = True
                break
            warped = sampling.warp(logits, warp)
            feed = sampling.draw(warped.probabilities, uniforms[index : index + 1])
            ids.append(feed)
            distributions.append(warped.probabilities)
            logits_seen.append(logits)
            complete.append(warped.complete)
        if not ids:
            nothing = context.new_zeros(0)
            empty = torch.zeros(0, self.cached.model.vocabulary, device=context.device)
            return Proposal(nothing, empty, empty, nothing.bool(), stopped, marks)
        return Proposal(
            torch.cat(ids), torch.cat(distributions), torch.cat(logits_seen), torch.cat(complete), stopped, marks
        )

    def keep(self, length: int) -> None:
        self.cached.rollback(min(length, self.cached.length))
