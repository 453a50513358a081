"""A model from which positions of the context are hidden: an intervention on the sink, or a cache that dropped keys.

The keys of the positions stay in the cache, at their place, but no later query sees them: what attention gives is what
it would give if they were not there. Prefill, decoding, verification and uncached passes all run with the same mask, so
that this is another model, and speculation is exact with respect to it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import and_masks, eager_mask, sdpa_mask

from specstudy.errors import UserError
from specstudy.models import grouped_attention
from specstudy.models.attention_functions import attending_by, calls_attention_functions

NAME, EAGER_NAME = "specstudy_without_position", "specstudy_without_position_eager"
NAMES = (NAME, EAGER_NAME)


def refuse_unless_maskable(module: PreTrainedModel) -> None:
    """Raise UserError for a model from which no position can be hidden: a mask that it is given would not be used."""
    if not calls_attention_functions(module):
        raise UserError(
            f"no position can be hidden from this {module.config.model_type} model: it calls no attention function of "
            "transformers; choose another one for prompts.versions=hidden or retention.budgets"
        )


def without_position(module: PreTrainedModel, position: int) -> AbstractContextManager[None]:
    """Within this block no query behind `position` sees its key in any layer; afterwards the model runs as before.

    The query at the position itself still sees it, so that no row of attention is empty.
    """
    return without_positions(module, [position], position + 1)


@contextmanager
def without_positions(module: PreTrainedModel, positions: Sequence[int], first_query: int) -> Iterator[None]:
    """Within this block no query from `first_query` on sees the keys of `positions`, all before it, in any layer;
    afterwards the model runs as before. Raises UserError for a model whose attention takes no mask from here."""
    refuse_unless_maskable(module)
    # One more than the last, which is not hidden: it stands for all positions behind.
    hidden = torch.zeros(max(positions) + 2, dtype=torch.bool, device=module.device)
    hidden[list(positions)] = True

    def seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return ~hidden[key.clamp(max=len(hidden) - 1)] | (query < first_query)

    runs_eager = module.config._attn_implementation in ("eager", EAGER_NAME)
    make: Callable[..., Tensor | None] = eager_mask if runs_eager else sdpa_mask

    def mask(*args: Any, mask_function: Any, allow_is_causal_skip: bool = True, **others: Any) -> Tensor | None:
        both = and_masks(mask_function, seen)
        return make(*args, mask_function=both, allow_is_causal_skip=False, **others)

    name, attend = (EAGER_NAME, _eager) if runs_eager else (NAME, grouped_attention.attend)
    with attending_by(module, name, attend, mask):
        yield


def _eager(module: nn.Module, *args: Any, **others: Any) -> tuple[Tensor, Any]:
    """A model's own eager attention, for what SDPA does not honour: soft-capped scores, a sink parameter."""
    attended: tuple[Tensor, Any] = sys.modules[type(module).__module__].eager_attention_forward(module, *args, **others)
    return attended
