"""Which function a model attends by: transformers lets a model call any that is registered."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask

from specstudy.errors import UserError
from specstudy.models import grouped_attention


def calls_attention_functions(module: nn.Module) -> bool:
    """Whether the code of this model calls registered attention functions: setting one for a model that does not
    changes nothing."""
    return any(hasattr(sys.modules[type(part).__module__], "ALL_ATTENTION_FUNCTIONS") for part in module.modules())


def use_grouped_attention(module: PreTrainedModel) -> None:
    """Let a model that runs SDPA through attention functions run it grouped from now on; any other stays as it is."""
    if module.config._attn_implementation == "sdpa" and calls_attention_functions(module):
        _set(module, grouped_attention.NAME, grouped_attention.attend, sdpa_mask)


def refuse_unless_maskable(module: PreTrainedModel, versions: str) -> None:
    """Raise UserError for a model that does not attend by what its mask says; `versions` of prompts need that."""
    runs = module.config._attn_implementation
    if runs not in ("sdpa", grouped_attention.NAME):
        raise UserError(
            f"prompts.versions={versions} needs models that run SDPA attention; this {module.config.model_type} "
            f"model runs {runs}: choose another one"
        )


@contextmanager
def attending_by(
    module: PreTrainedModel, name: str, function: Callable[..., tuple[Tensor, Any]], mask: Callable[..., Tensor | None]
) -> Iterator[None]:
    """Within this block `module` attends by `function`, with what `mask` makes; afterwards as before."""
    before = module.config._attn_implementation
    _set(module, name, function, mask)
    try:
        yield
    finally:
        module.set_attn_implementation(before)


def _set(module: PreTrainedModel, name: str, function: Callable[..., Any], mask: Callable[..., Any]) -> None:
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, mask)
    module.set_attn_implementation(name)
