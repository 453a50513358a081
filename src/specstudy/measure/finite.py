"""Logits that are NaN or infinite: who gave them, from which layer on, and what helps."""

from __future__ import annotations

import torch
from torch import Tensor

from specstudy.models.load import LanguageModel


class NotFiniteError(FloatingPointError):
    """A model gave NaN or infinite logits."""


def not_finite(model: LanguageModel, ids: Tensor) -> NotFiniteError:
    """The error for a model whose logits after ids [S] are not finite; one pass more finds the layer."""
    advice = "; execution.dtype=float32 or bfloat16 has the range" if model.dtype == torch.float16 else ""
    precision = str(model.dtype).removeprefix("torch.")
    return NotFiniteError(f"{model.name} gave NaN or infinite logits in {precision}{_place(model, ids)}{advice}")


@torch.inference_mode()
def _place(model: LanguageModel, ids: Tensor) -> str:
    output = model.module(input_ids=ids[None], use_cache=False, output_hidden_states=True, logits_to_keep=1)
    bad = [not bool(torch.isfinite(hidden).all()) for hidden in output.hidden_states or ()]
    if not any(bad):
        return ""
    first = bad.index(True)
    # The first hidden states are the embeddings; the last ones have also gone through the final norm.
    return f", first in layer {first - 1} of {len(bad) - 1}" if first else ", first in the embeddings"
