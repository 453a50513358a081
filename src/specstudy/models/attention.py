"""Attention reduced inside the layer: what every key receives, without ever keeping an S x S map.

transformers lets a model call any registered attention function. The one registered here returns the ordinary SDPA
output, and adds up query chunk by query chunk, in float32, how much each key is paid.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from specstudy.errors import UserError

NAME = "specstudy_reduced"
CHUNK_ELEMENTS = 16_000_000
# Arguments that do not change the weights of a causal decoder without dropout.
HARMLESS = {
    "position_ids",
    "use_cache",
    "cache_position",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "is_causal",
}


@dataclass(frozen=True)
class AttentionSums:
    """What the counted queries paid. L layers, H query heads, S keys; float32 on the CPU.

    column_sums [L, H, S] over all counted queries; window_sums [L, H, S] over the last `window` of them;
    boundary_entropy_bits [L, H] of the last query; sliding_windows [L], None for a full layer.
    """

    column_sums: Tensor
    window_sums: Tensor
    boundary_entropy_bits: Tensor
    sliding_windows: tuple[int | None, ...]
    first_query: int
    window: int


@dataclass
class Collector:
    """Sums of one forward pass, layer by layer."""

    window: int
    first_query: int = 0
    column_sums: list[Tensor] = field(default_factory=list)
    window_sums: list[Tensor] = field(default_factory=list)
    boundary_entropy_bits: list[Tensor] = field(default_factory=list)
    sliding_windows: list[int | None] = field(default_factory=list)

    def attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        dropout: float = 0.0,
        sliding_window: int | None = None,
        **others: object,
    ) -> tuple[Tensor, None]:
        """An attention function for transformers: query [1, H, S, D], key and value [1, KV, S, D]."""
        unknown = {name for name, value in others.items() if value is not None} - HARMLESS
        if unknown or dropout:
            raise UserError(
                f"prefill cannot measure attention with the argument {', '.join(sorted(unknown)) or 'dropout'}"
            )
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        self._add_up(query[0], key[0], attention_mask, scale, sliding_window)
        output: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, sliding_window=sliding_window, **others
        )
        return output

    def _add_up(
        self, query: Tensor, key: Tensor, attention_mask: Tensor | None, scale: float, sliding_window: int | None
    ) -> None:
        n_heads, n_queries, _ = query.shape
        n_kv_heads, n_keys, head_dim = key.shape
        columns = torch.zeros(n_heads, n_keys, device=query.device)
        late = torch.zeros_like(columns)
        chunk = max(1, CHUNK_ELEMENTS // (n_heads * n_keys))
        keys = key.float()
        for start in range(self.first_query, n_queries, chunk):
            stop = min(start + chunk, n_queries)
            rows = query[:, start:stop].float() * scale
            rows = rows.reshape(n_kv_heads, -1, head_dim)
            scores = (rows @ keys[:, :stop].transpose(1, 2)).view(n_heads, stop - start, stop)
            hidden = self._hidden(attention_mask, start, stop, sliding_window, scores.device)
            weights = scores.masked_fill_(hidden, -torch.inf).softmax(-1)
            columns[:, :stop] += weights.sum(1)
            first_late = max(start, n_queries - self.window)
            if first_late < stop:
                late[:, :stop] += weights[:, first_late - start :].sum(1)
        last = weights[:, -1]
        self.boundary_entropy_bits.append(-(last * last.clamp(min=1e-38).log2()).sum(-1))
        self.column_sums.append(columns)
        self.window_sums.append(late)
        self.sliding_windows.append(sliding_window)

    @staticmethod
    def _hidden(
        attention_mask: Tensor | None, start: int, stop: int, sliding_window: int | None, device: torch.device
    ) -> Tensor:
        """[queries, keys] of a chunk: True where a query may not see a key."""
        positions = torch.arange(stop, device=device)
        distance = positions[start:, None] - positions[None, :]
        hidden = distance < 0
        if sliding_window is not None:
            hidden |= distance >= sliding_window
        if attention_mask is not None:
            given = attention_mask[0, 0, start:stop, :stop]
            hidden |= ~given if given.dtype == torch.bool else given < 0
        return hidden

    def finish(self, n_layers: int) -> AttentionSums:
        """Move the sums to the CPU. Raises if a layer did not call, or if rows of attention do not sum to 1."""
        if len(self.column_sums) != n_layers:
            raise UserError(
                f"{len(self.column_sums)} of {n_layers} layers went through the attention interface: "
                "this architecture's attention cannot be measured"
            )
        columns = torch.stack(self.column_sums).cpu()
        n_counted = columns.shape[-1] - self.first_query
        totals = columns.sum(-1) / n_counted
        if not bool(((totals - 1.0).abs() < 1e-3).all()):
            raise FloatingPointError(
                f"rows of attention do not sum to 1 (worst mean {float(totals.min()):.4f} to {float(totals.max()):.4f})"
            )
        return AttentionSums(
            columns,
            torch.stack(self.window_sums).cpu(),
            torch.stack(self.boundary_entropy_bits).cpu(),
            tuple(self.sliding_windows),
            self.first_query,
            self.window,
        )


@contextmanager
def reduced_attention(module: PreTrainedModel, window: int, first_query: int = 0) -> Iterator[Collector]:
    """Within this block, forward passes of `module` add up their attention; afterwards it runs as before."""
    collector = Collector(window, first_query)
    before = module.config._attn_implementation
    AttentionInterface.register(NAME, collector.attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    module.set_attn_implementation(NAME)
    try:
        yield collector
    finally:
        module.set_attn_implementation(before)
