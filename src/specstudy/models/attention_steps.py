"""What each generating query pays, by head: to position 0, to the kinds of prompt positions, to the answer so far."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from specstudy.errors import UserError

SINK, STRUCTURAL, CONTENT, OWN = range(4)
"""Kinds of keys; position 0 is one of its own whatever it is in the template."""
TOLERANCE = 1e-3


@dataclass(frozen=True)
class GeneratingQueries:
    """The queries from the prompt's last position to the last but one of the text, whose logits give the answer.

    is_content [P] (bool): which prompt positions are content.
    """

    is_content: Tensor

    @property
    def first(self) -> int:
        return len(self.is_content) - 1

    def key_kinds(self, n_keys: int) -> Tensor:
        """[n_keys, 4] float32, on the device: a one where the key is of the kind."""
        kinds = torch.full((n_keys,), OWN, device=self.is_content.device)
        kinds[: len(self.is_content)] = torch.where(self.is_content, CONTENT, STRUCTURAL)
        kinds[0] = SINK
        return torch.nn.functional.one_hot(kinds, 4).float()


@dataclass(frozen=True)
class AttentionSteps:
    """T generating queries, L layers, H query heads; on the CPU, float32.

    masses [L, H, T, 4] by kind of key, paid to the keys that the query sees; previous [L, H, T] to the token before the
    query's (0 for the query at position 0); entropy_bits [L, H, T] of the attention as a distribution over keys, and
    rest_entropy_bits without position 0 (NaN where nothing is left).
    """

    masses: Tensor
    previous: Tensor
    entropy_bits: Tensor
    rest_entropy_bits: Tensor


class LayerSteps:
    """The generating queries of one layer while they come in, in order."""

    def __init__(self, queries: GeneratingQueries, n_keys: int) -> None:
        self.first, self.n_steps = queries.first, n_keys - 1 - queries.first
        self.kinds = queries.key_kinds(n_keys)
        self.chunks: list[tuple[Tensor, ...]] = []
        self.seen = 0

    def add(self, weights: Tensor, start: int, first_key: int) -> None:
        """Take float32 weights [H, q, k] that queries from `start` on pay to keys from `first_key` on."""
        early = max(0, self.first - start)
        late = min(weights.shape[1], self.first + self.n_steps - start)
        if early >= late:
            return
        weights, start = weights[:, early:late], start + early
        n_queries, n_keys = weights.shape[1:]
        masses = weights @ self.kinds[first_key : first_key + n_keys]
        later = weights[..., start - first_key :].triu(1).sum(-1)
        total = weights.sum(-1)
        terms = torch.special.entr(weights)
        sink = terms[..., 0] if first_key == 0 else torch.zeros_like(total)
        rest = terms[..., 1 if first_key == 0 else 0 :].sum(-1)
        self.chunks.append((masses, _previous(weights, start, first_key), sink + rest, rest, total, later))
        self.seen += n_queries

    def finish(self) -> tuple[Tensor, ...]:
        """As `AttentionSteps`, of this layer; then each row's total and what it paid to later keys [H, T]."""
        masses, previous, nats, rest_nats, total, later = (
            torch.cat(part, 1) for part in zip(*self.chunks, strict=True)
        )
        rest = masses[..., STRUCTURAL:].sum(-1)
        return masses, previous, _entropy_bits(nats, total), _entropy_bits(rest_nats, rest), total, later


def _previous(weights: Tensor, start: int, first_key: int) -> Tensor:
    """[H, q]: what each query pays to the key right before its own, which lies outside what some layers see."""
    place = torch.arange(start, start + weights.shape[1], device=weights.device) - 1 - first_key
    paid = weights.gather(-1, place.clamp(min=0).expand(len(weights), -1)[..., None])[..., 0]
    return torch.where(place >= 0, paid, 0.0)


def _entropy_bits(nats: Tensor, total: Tensor) -> Tensor:
    """Of weights of that sum made a distribution: nats is the sum of -w ln w over them."""
    return (nats / total + total.log()) / math.log(2)


def finished(layers: list[LayerSteps], pays_no_key: bool) -> AttentionSteps:
    """All layers, on the CPU. `pays_no_key`: a sink parameter takes part, so that rows sum to less than 1.

    Raises UserError if a layer was not seen whole, FloatingPointError if rows do not sum to 1 over the kinds of keys,
    or pay a later key.
    """
    if any(layer.seen != layer.n_steps for layer in layers):
        raise UserError("not every layer's attention was seen while it writes; choose another verifier")
    parts = zip(*(layer.finish() for layer in layers), strict=True)
    masses, previous, entropy, rest, total, later = (torch.stack(part).cpu() for part in parts)
    by_kind = masses.sum(-1)
    if not bool(((by_kind - total).abs() < TOLERANCE).all()) or bool((by_kind > 1.0 + TOLERANCE).any()):
        raise FloatingPointError("attention to the kinds of positions does not add up to all that a query pays")
    if not pays_no_key and not bool((by_kind > 1.0 - TOLERANCE).all()):
        raise FloatingPointError("rows of attention do not sum to 1")
    if not bool((later == 0.0).all()):
        raise FloatingPointError("a row of attention pays a later key")
    return AttentionSteps(masses, previous, entropy, rest)
