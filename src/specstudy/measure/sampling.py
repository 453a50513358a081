"""From logits to distributions to tokens: entropy, temperature, nucleus, draws by inverse CDF. Float32, on the device.

Nothing here waits for the device: what needs a decision by the host (a nucleus wider than the candidates looked at) is
returned as a flag for the caller to look at together with its other results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

# A nucleus nearly always lies within the first. Beyond it the work grows, most of all for sorting everything.
WIDTHS = (256, 1024, 8192)
GROUP_SIZE = 16
SMALLEST = 1e-30


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
    everything = torch.ones(rows, dtype=torch.bool, device=logits.device)
    if how.temperature == 0:
        best = logits.argmax(-1, keepdim=True)
        return Warped(best, torch.ones_like(best, dtype=torch.float32), everything)
    probabilities = torch.softmax(logits / how.temperature, dim=-1)
    if how.top_p >= 1.0:
        return Warped(torch.arange(vocabulary, device=logits.device).expand(rows, -1), probabilities, everything)
    size = vocabulary if how.candidates is None else min(how.candidates, vocabulary)
    top, ids = largest(probabilities, size)
    cumulative = top.cumsum(-1)
    last = (cumulative < how.top_p).sum(-1, keepdim=True).clamp(max=size - 1)
    least, mass = top.gather(-1, last), cumulative.gather(-1, last)
    n_tied = last + 1 - (top > least).sum(-1, keepdim=True)
    # In the order of ids, a draw does not depend on which of two nearly equal probabilities rounds higher.
    ids, order = ids.sort(dim=-1)
    p = top.gather(-1, order)
    tied = p == least
    kept = (p > least) | (tied & (tied.cumsum(-1) <= n_tied))
    # Of ids as likely as the least of the nucleus some may lie beyond the candidates.
    inside = (cumulative[:, -1] >= how.top_p) & (top[:, -1] < least[:, 0])
    return Warped(ids, p * kept / mass, inside if size < vocabulary else everything)


def largest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row [R, V] in descending order and their places [R, k]: what topk gives, in less time.

    They lie in the k groups with the largest maxima, which are found among far fewer numbers.
    """
    n_groups = values.shape[-1] // GROUP_SIZE
    if n_groups < 2 * k:
        top, ids = values.topk(k, dim=-1)
        return top, ids
    n_grouped = n_groups * GROUP_SIZE
    # A group's members lie n_groups apart, so that its maximum is one of whole vectors.
    maxima = values[:, :n_grouped].unflatten(-1, (GROUP_SIZE, n_groups)).amax(1)
    best = maxima.topk(k, dim=-1, sorted=False).indices
    starts = torch.arange(0, n_grouped, n_groups, device=values.device)
    ids = (starts[:, None] + best[:, None]).flatten(1)
    if n_grouped < values.shape[-1]:
        rest = torch.arange(n_grouped, values.shape[-1], device=values.device).expand(len(values), -1)
        ids = torch.cat([ids, rest], dim=-1)
    top, places = values.gather(-1, ids).topk(k, dim=-1)
    return top, ids.gather(-1, places)


def draw(ids: Tensor, weights: Tensor, uniforms: Tensor) -> Tensor:
    """Ids [R] drawn by inverse CDF from weights [R, K] (>= 0, not all 0) of ids [R, K] with uniforms [R] in [0, 1).

    Unlike `multinomial` it repeats across devices and never returns an id of weight 0.
    """
    cumulative = weights.cumsum(-1)
    target = uniforms[:, None] * cumulative[:, -1:]
    places = torch.arange(weights.shape[-1], device=weights.device)
    positive = weights > 0
    # A parallel cumsum may step back by a rounding error, and u * total may round up to the total.
    first_beyond = torch.where((cumulative > target) & positive, places, weights.shape[-1]).amin(-1)
    last_positive = torch.where(positive, places, 0).amax(-1)
    return ids.gather(-1, torch.minimum(first_beyond, last_positive)[:, None])[:, 0]


@dataclass(frozen=True)
class RawStatistics:
    """At temperature 1, all [R]: log of the normaliser, entropy, and `finite`, False for NaN or infinite logits."""

    log_normalizer: Tensor
    entropy_bits: Tensor
    finite: Tensor


def raw_statistics(logits: Tensor) -> RawStatistics:
    """H = -sum p log2 p in bits over softmax(logits), float32 logits [R, V]; a logit of -inf has p = 0 and adds 0."""
    highest = logits.amax(-1, keepdim=True)
    # exp(-80) adds nothing that float32 could hold beside the highest; the floor keeps 0 * inf out of the sum.
    centred = (logits - highest).clamp_(min=-80.0)
    weights = centred.exp()
    total = weights.sum(-1)
    log_total = total.log()
    entropy = log_total - (weights * centred).sum(-1) / total
    return RawStatistics(
        log_total + highest[:, 0], (entropy / math.log(2)).clamp(min=0.0), torch.isfinite(highest[:, 0] + total)
    )


def top_two(logits: Tensor, log_normalizer: Tensor) -> Tensor:
    """The two largest probabilities [2, R] of softmax(logits), float32 logits [R, V] with their log-normaliser [R]."""
    return (largest(logits, 2)[0] - log_normalizer[:, None]).exp().clamp(max=1.0).T


def expected_acceptance(verifier: Warped, draft: Tensor) -> Tensor:
    """sum_x min(p(x), q(x)) [R], the draft's q dense [R, V]: the chance that a token drawn from q passes."""
    return torch.minimum(verifier.probabilities, draft.gather(-1, verifier.ids)).sum(-1).clamp(max=1.0)


def acceptance_probability(p: Tensor, q: Tensor) -> Tensor:
    """min(1, p / q) for the probabilities [R] of drafted tokens (Leviathan et al. 2023; Chen et al. 2023)."""
    return (p / q.clamp(min=SMALLEST)).clamp(max=1.0)


def residual(verifier: Warped, draft: Tensor) -> Tensor:
    """max(0, p - q) [R, K] over the verifier's ids, not normalised; q dense [R, V]. A rejected token's correction is
    drawn from it.

    Where rounding leaves nothing (p equals q), p itself: such a position is rejected with probability 0.
    """
    rest = (verifier.probabilities - draft.gather(-1, verifier.ids)).clamp(min=0.0)
    empty = rest.sum(-1, keepdim=True) <= 0
    return torch.where(empty, verifier.probabilities, rest)
