"""A model from which one position of the context is hidden: an intervention on the sink.

The key of the position stays in the cache, but no later query sees it. Prefill, decoding, verification and uncached
passes all run with the same mask, so that this is another model, and speculation is exact with respect to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel
from transformers.masking_utils import and_masks, sdpa_mask

from specstudy.models import grouped_attention
from specstudy.models.attention_functions import attending_by, refuse_unless_maskable

NAME = "specstudy_without_position"


@contextmanager
def without_position(module: PreTrainedModel, position: int) -> Iterator[None]:
    """Within this block no query behind `position` sees its key in any layer; afterwards the model runs as before.

    The query at the position itself still sees it, so that no row of attention is empty. Raises UserError for a model
    whose attention does not run through SDPA, where the mask could not be relied upon.
    """
    refuse_unless_maskable(module, "hidden")

    def seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key != position) | (query <= position)

    def mask(*args: Any, mask_function: Any, allow_is_causal_skip: bool = True, **others: Any) -> Tensor | None:
        both = and_masks(mask_function, seen)
        made: Tensor | None = sdpa_mask(*args, mask_function=both, allow_is_causal_skip=False, **others)
        return made

    with attending_by(module, NAME, grouped_attention.attend, mask):
        yield
