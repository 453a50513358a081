"""A model in which one key of each head is scored lower: an intervention that takes attention away, by a chosen amount.

Before the softmax `by` is subtracted from the scaled score of that key, for every query behind it: at prefill, while
writing, in uncached passes and while attention is measured. So this is another model, and speculation is exact with
respect to it. Of a key's odds against all others exp(-by) are left; subtracting infinity would hide it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary
from transformers import PreTrainedModel
from transformers.masking_utils import sdpa_mask

from specstudy.errors import UserError
from specstudy.models import grouped_attention
from specstudy.models.attention_functions import attending_by

NAME = "specstudy_lowered_scores"


@dataclass(frozen=True)
class _Places:
    """Where a mask's queries [S] and keys [T] stand in the text."""

    queries: Tensor
    keys: Tensor


# A pass has one mask for each kind of layer: what is known of it lives as long as the mask itself.
_places_of_masks: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


@contextmanager
def lowered_scores(module: PreTrainedModel, positions: Tensor, by: float) -> Iterator[None]:
    """Within this block the key at `positions` [L, H], or [L or 1, 1] for all heads alike, loses `by` of its score;
    afterwards the model runs as before. L layers, H query heads.

    The query at the position itself scores its key as ever, as where a position is hidden. Raises UserError for a model
    whose attention does not run through SDPA, or does not take the masks that transformers makes.
    """
    refuse_unless_scores_can_be_lowered(module)
    layers = _attention_layers(module)
    handles = [
        layer.register_forward_pre_hook(_Lowering(row, by, module.dtype), with_kwargs=True)
        for layer, row in zip(layers, positions.expand(len(layers), -1), strict=True)
    ]
    try:
        with attending_by(module, NAME, grouped_attention.attend, _mask):
            yield
    finally:
        for handle in handles:
            handle.remove()


def refuse_unless_scores_can_be_lowered(module: PreTrainedModel) -> None:
    """Raise UserError for a model that does not attend by SDPA, which adds what a mask says to the scores."""
    runs = module.config._attn_implementation
    if runs not in ("sdpa", grouped_attention.NAME):
        raise UserError(
            f"prompts.versions=lowered needs models that run SDPA attention; this {module.config.model_type} model "
            f"runs {runs}: choose another one"
        )


def _attention_layers(module: PreTrainedModel) -> list[nn.Module]:
    """The attention of every layer, in order."""
    named = [part for part in module.modules() if "Attention" in type(part).__name__ and hasattr(part, "layer_idx")]
    layers = sorted(named, key=lambda part: int(part.layer_idx))
    if [layer.layer_idx for layer in layers] != [*range(module.config.get_text_config(decoder=True).num_hidden_layers)]:
        raise _refusal(module)
    return layers


def _refusal(module: nn.Module) -> UserError:
    return UserError(
        f"scores cannot be lowered in {type(module).__name__}, whose attention takes its masks in a way of its own: "
        "choose another model for prompts.versions=lowered"
    )


def _mask(*, q_offset: Any = 0, kv_offset: int = 0, allow_is_causal_skip: bool = True, **others: Any) -> Tensor | None:
    """The model's own mask, also where a kernel could do without, and its places noted."""
    made: Tensor | None = sdpa_mask(q_offset=q_offset, kv_offset=kv_offset, allow_is_causal_skip=False, **others)
    if made is not None:
        n_queries, n_keys = made.shape[-2:]
        _places_of_masks[made] = _Places(
            torch.arange(n_queries, device=made.device) + q_offset, torch.arange(n_keys, device=made.device) + kv_offset
        )
    return made


@dataclass(frozen=True)
class _Lowering:
    """A hook before one layer's attention; positions [H] or [1]."""

    positions: Tensor
    by: float
    dtype: torch.dtype

    def __call__(
        self, module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        mask = keywords.get("attention_mask")
        places = None if mask is None else _places_of_masks.get(mask)
        if mask is None or places is None:
            raise _refusal(module)
        at = self.positions[:, None, None]
        lowered = (places.keys == at) & (places.queries[:, None] > at)
        added = lowered.to(self.dtype) * -self.by
        return arguments, {**keywords, "attention_mask": added.masked_fill(~mask, -torch.inf)}
