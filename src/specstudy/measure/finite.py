"""Logits that are NaN or infinite: who gave them, from which layer on, and what helps."""

from __future__ import annotations

import torch
from torch import Tensor

from specstudy.errors import UserError
from specstudy.models.load import LanguageModel, Pair

PROBE_TOKENS = 32
"""Over fewer keys than a vector register holds, torch's causal SDPA on CPUs makes numbers of NaN scores."""


class NotFiniteError(FloatingPointError):
    """A model gave NaN or infinite logits."""


@torch.inference_mode()
def refuse_unless_finite(pair: Pair) -> None:
    """Raise UserError for a model that gives NaN or infinite logits from the first few tokens on."""
    n_tokens = min(PROBE_TOKENS, pair.verifier.vocabulary, pair.context_length or PROBE_TOKENS)
    ids = torch.arange(n_tokens, device=pair.verifier.device)
    for model in (pair.verifier, pair.draft):
        logits = model.module(input_ids=ids[None], use_cache=False).logits[..., : model.vocabulary]
        if not bool(torch.isfinite(logits.float().logsumexp(-1)).all()):  # a head over few ids gives the others -inf
            raise UserError(str(not_finite_error(model, ids)))


def not_finite_error(model: LanguageModel, ids: Tensor) -> NotFiniteError:
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
