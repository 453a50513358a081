"""From logits to distributions to tokens: entropy, temperature, nucleus, draws by inverse CDF. Float32, on the device.

Nothing here waits for the device: what needs a decision by the host (a nucleus wider than the candidates looked at) is
returned as a flag for the caller to look at together with its other results.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

# A nucleus mostly lies within the first. Beyond it the work grows, most of all for sorting everything.
WIDTHS = (64, 256, 1024, 8192)
SMALLEST = 1e-30
GROUP = 8
"""Members of a group in a search by groups."""
FEW = 2048
"""Values that one search goes through faster than the several steps of a search by groups."""


@dataclass(frozen=True)
class Warp:
    """Temperature and nucleus, the same for verifier and draft. Temperature 0 is greedy: a one-hot at the argmax.

    `candidates` is how many of the most likely ids are searched for the nucleus; None searches all of them. The result
    does not depend on it: only whether it could be found.
    """

    temperature: float
    top_p: float
    candidates: int | None = WIDTHS[0]

    def widened(self) -> Warp:
        """The same warp with more candidates: the next of WIDTHS, in the end all."""
        wider = (width for width in WIDTHS if self.candidates is not None and width > self.candidates)
        return replace(self, candidates=next(wider, None))


@dataclass(frozen=True)
class Warped:
    """Distributions over the ids that can be drawn: probabilities [R, K] of ids [R, K], ascending ids in each row.

    `complete` [R] is False where the nucleus did not fit into the candidates.
    """

    ids: Tensor
    probabilities: Tensor
    complete: Tensor

    def at(self, ids: Tensor) -> Tensor:
        """Probability [R] of one id [R] in each row."""
        return (self.probabilities * (self.ids == ids[:, None])).sum(-1)

    def over(self, ids: Tensor | None) -> Warped:
        """The same where the columns of the logits stood for these ascending ids [K]; None: for all ids in order."""
        return self if ids is None else replace(self, ids=ids[self.ids])

    def dense(self, vocabulary: int) -> Tensor:
        """Probabilities of all ids [R, V]."""
        return self.probabilities.new_zeros(len(self.ids), vocabulary).scatter_(-1, self.ids, self.probabilities)

    def entropy_bits(self) -> Tensor:
        """Entropy [R]."""
        p = self.probabilities
        return -(p * p.clamp(min=SMALLEST).log2()).sum(-1).clamp(max=0.0)


def stacked(rows: Sequence[Warped]) -> Warped:
    """Distributions of one warp, one below the other."""
    return Warped(
        torch.cat([row.ids for row in rows]),
        torch.cat([row.probabilities for row in rows]),
        torch.cat([row.complete for row in rows]),
    )


def warp(logits: Tensor, how: Warp) -> Warped:
    """Distributions that are sampled from, for float32 logits [R, V].

    The nucleus is the smallest set of most likely ids whose probability after temperature reaches top_p (Holtzman et
    al. 2020); of equal ones the lower id comes first.
    """
    rows, vocabulary = logits.shape
    if how.temperature == 0:
        best = logits.argmax(-1, keepdim=True)
        return Warped(best, torch.ones_like(best, dtype=torch.float32), _all_true(logits))
    probabilities = torch.softmax(logits / how.temperature, dim=-1)
    if how.top_p >= 1.0:
        ids = torch.arange(vocabulary, device=logits.device).expand(rows, -1)
        return Warped(ids, probabilities / probabilities.sum(-1, keepdim=True), _all_true(logits))
    size = vocabulary if how.candidates is None else min(how.candidates, vocabulary)
    values, found = _largest(probabilities, size, ranked=False)
    # In the order of ids, a draw does not depend on which of two nearly equal probabilities rounds higher.
    ids, order = found.sort(dim=-1)
    ranked, places = values.gather(-1, order).sort(dim=-1, descending=True, stable=True)
    cumulative = ranked.cumsum(-1)
    last = torch.searchsorted(cumulative, cumulative.new_full((rows, 1), how.top_p)).clamp_(max=size - 1)
    nucleus = ranked * (_every(1, size, logits.device) <= last) / cumulative.gather(-1, last)
    # Where the last candidate is as likely as the least of the nucleus, more of it may lie beyond.
    complete = ranked[:, -1] < ranked.gather(-1, last)[:, 0] if size < vocabulary else _all_true(logits)
    return Warped(ids, torch.empty_like(nucleus).scatter_(-1, places, nucleus), complete)


def _all_true(rows: Tensor) -> Tensor:
    return torch.ones(len(rows), dtype=torch.bool, device=rows.device)


@functools.cache
def _every(step: int, n: int, device: torch.device) -> Tensor:
    """0, step, 2 step, ... [n], made once."""
    return torch.arange(0, n * step, step, device=device)


def largest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row [R, V] in descending order and their places [R, k]: what topk gives, in less time."""
    return _largest(values, k, ranked=True)


def _largest(values: Tensor, k: int, ranked: bool) -> tuple[Tensor, Tensor]:
    """The k largest and their places, in any order unless `ranked`.

    They lie in the k groups with the largest maxima, which are found among far fewer numbers in the same way.
    """
    n_groups = values.shape[-1] // GROUP
    if values.shape[-1] <= FEW or n_groups < 2 * k:
        top, ids = values.topk(k, dim=-1, sorted=ranked)
        return top, ids
    n_grouped = n_groups * GROUP
    # A group's members lie n_groups apart, so that its maximum is one of whole vectors.
    best = _largest(values[:, :n_grouped].unflatten(-1, (GROUP, n_groups)).amax(1), k, ranked=False)[1]
    ids = (_every(n_groups, GROUP, values.device)[:, None] + best[:, None]).flatten(1)
    if n_grouped < values.shape[-1]:
        rest = torch.arange(n_grouped, values.shape[-1], device=values.device).expand(len(values), -1)
        ids = torch.cat([ids, rest], dim=-1)
    top, places = values.gather(-1, ids).topk(k, dim=-1, sorted=ranked)
    return top, ids.gather(-1, places)


def draw(ids: Tensor, weights: Tensor, uniforms: Tensor) -> Tensor:
    """Ids [R] drawn by inverse CDF from weights [R, K] (>= 0, of a sum over 1e-30) of ids [R, K] with uniforms [R] in
    [0, 1).

    Unlike `multinomial` it repeats across devices and never returns an id of weight 0.
    """
    # Where the weight is 0 nothing is drawn, also where a parallel cumsum steps back by a rounding error.
    cumulative = weights.cumsum(-1) * (weights > 0)
    # A uniform is at most 1 - 2^-24, so that its product stays below the total however it is rounded.
    beyond = cumulative > uniforms[:, None] * cumulative.amax(-1, keepdim=True)
    # Of equal ones argmax gives the first.
    return ids.gather(-1, beyond.int().argmax(-1, keepdim=True))[:, 0]


@dataclass(frozen=True)
class RawStatistics:
    """Of softmax(logits) at temperature 1, all [R]: entropy, and the two parts of the normaliser's log, the highest
    logit and the rest. `finite` is False, and the entropy NaN, where a logit was NaN or +inf, or all were -inf."""

    entropy_bits: Tensor
    highest: Tensor
    log_rest: Tensor

    @property
    def log_normalizer(self) -> Tensor:
        return self.log_rest + self.highest

    @property
    def finite(self) -> Tensor:
        return ~self.entropy_bits.isnan()


def raw_statistics(logits: Tensor) -> RawStatistics:
    """H = -sum p log2 p in bits over softmax(logits), float32 logits [R, V]; a logit of -inf has p = 0 and adds 0."""
    highest = logits.amax(-1, keepdim=True)
    p = torch.softmax(logits, dim=-1)
    # softmax adds up its normaliser with an error that grows with V; this sum does not.
    total = p.sum(-1)
    log_rest = total.log() - p.amax(-1).log()
    # exp(-80) adds nothing that float32 could hold beside the highest; the floor keeps 0 * inf out of the sum.
    centred = (logits - highest).clamp_(min=-80.0)
    entropy_nats = log_rest - p.mul_(centred).sum(-1) / total
    return RawStatistics((entropy_nats / math.log(2)).clamp_(min=0.0), highest[:, 0], log_rest)


def top_two(logits: Tensor, log_normalizer: Tensor) -> Tensor:
    """The two largest probabilities [2, R] of softmax(logits), float32 logits [R, V] with their log-normaliser [R]."""
    return (largest(logits, 2)[0] - log_normalizer[:, None]).exp().clamp(max=1.0).T


def expected_acceptance(p: Tensor, q: Tensor) -> Tensor:
    """sum_x min(p(x), q(x)) [R], the chance that a token drawn from q passes; p and q [R, K] over the same ids, which
    hold all that p can give."""
    return torch.minimum(p, q).sum(-1).clamp(max=1.0)


def acceptance_probability(p: Tensor, q: Tensor) -> Tensor:
    """min(1, p / q) for the probabilities [R] of drafted tokens (Leviathan et al. 2023; Chen et al. 2023)."""
    return (p / q.clamp(min=SMALLEST)).clamp(max=1.0)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """max(0, p - q) [R, K], not normalised; p and q over the same ids. A rejected token's correction is drawn from it.

    Where rounding leaves nothing (p equals q), p itself: such a position is rejected with probability 0.
    """
    rest = (p - q).clamp(min=0.0)
    empty = rest.sum(-1, keepdim=True) <= SMALLEST
    return torch.where(empty, p, rest)
