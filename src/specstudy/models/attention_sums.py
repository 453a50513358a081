"""What every key receives, added up layer by layer, and the checks that every sum must pass."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specstudy.errors import UserError
from specstudy.models import attention_steps
from specstudy.models.attention_steps import AttentionSteps, GeneratingQueries, LayerSteps


@dataclass(frozen=True)
class AttentionSums:
    """What the counted queries paid. L layers, H query heads, S keys; on the CPU, float32 unless said otherwise.

    column_sums [L, H, S] over all counted queries; window_sums [L, H, S] over the last `window` of them;
    visible_queries [L, S] (int64): how many counted queries can see the key; paid_to_no_key [L, H]: what a sink
    parameter takes, summed over counted queries (0 where there is none: rows then sum to 1);
    boundary_entropy_bits [L, H] of the last query's attention, as a distribution over keys; `steps` is None unless
    generating queries were asked for.
    """

    column_sums: Tensor
    window_sums: Tensor
    visible_queries: Tensor
    paid_to_no_key: Tensor
    boundary_entropy_bits: Tensor
    first_query: int
    window: int
    steps: AttentionSteps | None


class LayerSums:
    """Sums of one layer while its queries come in, in order."""

    def __init__(
        self,
        n_heads: int,
        n_keys: int,
        window: int,
        first_query: int,
        device: torch.device,
        steps: LayerSteps | None = None,
    ) -> None:
        self.n_keys, self.first_query, self.steps = n_keys, first_query, steps
        self.first_late = max(first_query, n_keys - window)
        self.columns = torch.zeros(n_heads, n_keys, device=device)
        self.late = torch.zeros_like(self.columns)
        self.visible = torch.zeros(n_keys, dtype=torch.long, device=device)
        self.paid_to_no_key = torch.zeros(n_heads, device=device)
        self.entropy_bits = torch.full((n_heads,), torch.nan, device=device)

    def add(self, weights: Tensor, start: int, first_key: int = 0, visible: Tensor | None = None) -> None:
        """Add float32 weights [H, q, k] that queries from `start` on pay to keys from `first_key` on.

        `visible` [q, first_key + k] says which keys each query sees; None: all up to its own position.
        """
        _, n_queries, n_keys = weights.shape
        stop, end = start + n_queries, first_key + n_keys
        if self.steps:
            self.steps.add(weights, start, first_key)
        counted = max(0, self.first_query - start)
        if counted < n_queries:
            self.columns[:, first_key:end] += _sum_over_queries(weights[:, counted:])
            if visible is None:
                keys = torch.arange(stop, device=weights.device)
                self.visible[:stop] += stop - keys.clamp(min=start + counted)
            else:
                self.visible[:end] += visible[counted:].sum(0)
        late = max(0, self.first_late - start)
        if late < n_queries:
            self.late[:, first_key:end] += _sum_over_queries(weights[:, late:])
        if stop == self.n_keys:
            last = weights[:, -1] / weights[:, -1].sum(-1, keepdim=True)
            self.entropy_bits = -(last * last.clamp(min=1e-38).log2()).sum(-1)


def _sum_over_queries(weights: Tensor) -> Tensor:
    """[H, q, k] to [H, k], by a product with ones: the libraries' matrix code is faster than their sums."""
    return (weights.new_ones(weights.shape[0], 1, weights.shape[1]) @ weights)[:, 0]


class SumsOfLayers:
    """Sums of one forward pass, layer by layer."""

    row_tolerance = 1e-3

    def __init__(
        self, n_layers: int, window: int, first_query: int, generating: GeneratingQueries | None = None
    ) -> None:
        self.n_layers, self.window, self.first_query, self.generating = n_layers, window, first_query, generating
        self._layers: list[LayerSums] = []

    @property
    def first_needed(self) -> int:
        """The first query that is looked at."""
        return min(self.first_query, self.generating.first) if self.generating else self.first_query

    def new_layer(self, n_heads: int, n_keys: int, device: torch.device) -> LayerSums:
        """The next layer's sums, empty."""
        steps = LayerSteps(self.generating, n_keys) if self.generating else None
        self._layers.append(LayerSums(n_heads, n_keys, self.window, self.first_query, device, steps))
        return self._layers[-1]

    def finish(self) -> AttentionSums:
        """Move the sums to the CPU.

        Raises UserError if not every layer was seen once or their heads differ in number, FloatingPointError if rows
        of attention do not sum to 1.
        """
        if len(self._layers) != self.n_layers:
            raise UserError(
                f"the attention of {len(self._layers)} of {self.n_layers} layers was seen: that of this architecture "
                "cannot be measured; choose another verifier"
            )
        if len({len(layer.columns) for layer in self._layers}) > 1:
            raise UserError(
                "its layers have different numbers of attention heads, of which no common mean is defined here; "
                "choose another verifier"
            )
        columns, late, visible, paid_to_no_key, entropy = (
            torch.stack([getattr(layer, name) for layer in self._layers]).cpu()
            for name in ("columns", "late", "visible", "paid_to_no_key", "entropy_bits")
        )
        n_counted = columns.shape[-1] - self.first_query
        totals = (columns.sum(-1) + paid_to_no_key) / n_counted
        if not bool(((totals - 1.0).abs() < self.row_tolerance).all()):
            raise FloatingPointError(
                f"rows of attention do not sum to 1 (worst mean {float(totals.min()):.4f} to {float(totals.max()):.4f})"
            )
        followed = [layer.steps for layer in self._layers if layer.steps]
        steps = attention_steps.finished(followed, bool((paid_to_no_key > 0).any())) if followed else None
        return AttentionSums(columns, late, visible, paid_to_no_key, entropy, self.first_query, self.window, steps)
