"""Is the attention that a model runs with right on this device, in this precision? Checked against plain arithmetic.

Backends have been wrong inside one pass: half-precision SDPA on MPS let queries see later keys (PyTorch issue 195910).
Passes with a cache and without may share such a fault, so that comparing them shows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from specstudy.models import without_position
from specstudy.models.attention_functions import attending_by, calls_attention_functions
from specstudy.models.cache import CachedModel
from specstudy.models.load import LanguageModel

NAME = "specstudy_compared"
MOST_TOKENS = 1024


def attention_errors(model: LanguageModel, ids: Tensor, n_rows: int) -> list[float]:
    """Errors of a prefill over ids [S], of a single row after it and of `n_rows` rows after that, one for each kind of
    mask: the largest root mean square difference of a head's row from explicit attention, in those of the values.

    Empty for a model that runs no kernel: its attention is plain arithmetic itself.
    """
    prompt, row, rows = ids[:MOST_TOKENS].tensor_split([-n_rows - 1, -n_rows])
    with _compared_attention(model.module) as errors:
        cached = CachedModel(model)
        cached.prefill(prompt)
        for block in (row, rows):
            if len(block):
                cached.forward(block, keep=1)
    return errors


def explicit_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Causal attention of query [1, H, S, D] over key [1, KV, T, D] and value [1, KV, T, E], the last query at the last
    key, in float32: [1, S, H, E]. `mask` [1, 1 or H, S, T] as SDPA takes it narrows what is seen, and never widens it.
    """
    n_heads, n_queries, n_keys = query.shape[1], query.shape[2], key.shape[2]
    group = n_heads // key.shape[1]
    later = torch.ones(n_queries, n_keys, dtype=torch.bool, device=query.device).triu(n_keys - n_queries + 1)
    heads = []
    for head in range(n_heads):
        scores = query[0, head].float() @ key[0, head // group].float().T * scale
        if mask is not None:
            given = mask[0, head if mask.shape[1] > 1 else 0]
            scores = scores.masked_fill(~given, -torch.inf) if given.dtype == torch.bool else scores + given
        heads.append(scores.masked_fill(later, -torch.inf).softmax(-1) @ value[0, head // group].float())
    return torch.stack(heads, 1)[None]


class _ComparedAttention:
    """Attends as another function does, and tries that on numbers of its own in the shapes that it is given."""

    def __init__(self, function: Callable[..., tuple[Tensor, Any]], errors: list[float]) -> None:
        self.function = function
        self.errors = errors
        self._tried: set[object] = set()
        self._random = torch.Generator().manual_seed(0)

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **others: Any
    ) -> tuple[Tensor, Any]:
        """What transformers asks for. The layers of a pass share their masks: one layer for each of these is tried."""
        case = (query.shape, key.shape, id(attention_mask))
        if case not in self._tried:
            self._tried.add(case)
            self._try(module, attention_mask, query, key, value)
        return self.function(module, query, key, value, attention_mask, **others)

    def _try(self, module: nn.Module, mask: Tensor | None, *like: Tensor) -> None:
        # Of one size in every model, so that rounding is too; a model's own scores may be hundreds.
        query, key, value = (torch.randn(t.shape, generator=self._random).to(t) for t in like)
        scale = query.shape[-1] ** -0.5
        found, _ = self.function(module, query, key, value, mask, dropout=0.0, scaling=scale)
        difference = found.float() - explicit_attention(query, key, value, mask, scale)
        self.errors.append(float(difference.square().mean(-1).sqrt().max()))


@contextmanager
def _compared_attention(module: PreTrainedModel) -> Iterator[list[float]]:
    """Within this block the attention that `module` runs with is compared; afterwards it runs as before."""
    errors: list[float] = []
    before = module.config._attn_implementation
    if before in ("eager", without_position.EAGER_NAME) or not calls_attention_functions(module):
        yield errors
        return
    compared = _ComparedAttention(ALL_ATTENTION_FUNCTIONS[before], errors)
    with attending_by(module, NAME, compared.attend, ALL_MASK_ATTENTION_FUNCTIONS[before]):
        yield errors
