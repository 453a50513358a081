"""SDPA over few queries without copying keys: the query heads that share a key-value head attend as one block.

The library copies every key and value for each query head of a group, or, for one query, takes a path that is as slow.
Here the group's queries stand one below the other, and each key is read once (grouped-query attention, Ainslie et al.
2023). The weights are the same; a pass over a long prompt runs as the library runs it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary
from transformers.integrations.sdpa_attention import sdpa_attention_forward

NAME = "specstudy_grouped"
MOST_QUERIES = 16
"""Beyond it the products cost more than the copies."""
# Arguments of the library's function that this one leaves to it.
OTHER_ARITHMETIC = ("position_bias", "softcap")

# A pass has one mask for all its layers: what is made of it lives as long as the mask itself.
_masks_of_blocks: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def _of_blocks(mask: Tensor, group: int, dtype: torch.dtype) -> Tensor:
    """A mask [B, 1, S, T] once for each head of a group, [B, 1, group * S, T], as SDPA adds it to the scores; one for
    each head [B, H, S, T] in blocks [B, KV, group * S, T].

    Kept for the pass's other layers in inference mode, where nobody changes a mask once it is made.
    """
    found: Tensor | None = _masks_of_blocks.get(mask) if torch.is_inference_mode_enabled() else None
    if found is None or found.shape[2] != group * mask.shape[2] or found.dtype != dtype:
        if mask.dtype == torch.bool:
            added = torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -torch.inf)
        else:
            added = mask.to(dtype)
        shape = (len(mask), -1, group * mask.shape[2], mask.shape[3])
        found = added.repeat(1, 1, group, 1) if mask.shape[1] == 1 else added.reshape(shape)
        if torch.is_inference_mode_enabled():
            _masks_of_blocks[mask] = found
    return found


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: object,
) -> tuple[Tensor, None]:
    """Query [B, H, S, D], key [B, KV, T, D], value [B, KV, T, E] to output [B, S, H, E]: what transformers asks for."""
    batch, n_heads, n_queries, head_dim = query.shape
    group = n_heads // key.shape[1]
    said_by_the_mask = n_queries == 1 or attention_mask is not None
    plain = not dropout and all(others.get(name) is None for name in OTHER_ARITHMETIC)
    if group == 1 or n_queries > MOST_QUERIES or not said_by_the_mask or not plain:
        output: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **others
        )
        return output
    blocks = query.reshape(batch, -1, group * n_queries, head_dim)
    mask = None if attention_mask is None else _of_blocks(attention_mask, group, query.dtype)
    attended = torch.nn.functional.scaled_dot_product_attention(blocks, key, value, attn_mask=mask, scale=scaling)
    return attended.view(batch, n_heads, n_queries, -1).transpose(1, 2).contiguous(), None
