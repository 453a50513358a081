"""Attention of architectures that call no attention function: their eager maps, reduced one layer at a time.

Each layer's own map is unavoidable here: memory grows with the square of the prompt, but not with the layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from specstudy.errors import UserError
from specstudy.models import device as devices
from specstudy.models.attention_steps import GeneratingQueries
from specstudy.models.attention_sums import SumsOfLayers

# model_type of those whose attention modules were seen to return their maps as the second of their results.
FAMILIES = ("bloom", "falcon", "gpt_neo", "mpt")
MAP_COPIES = 5
"""Float32 tensors as large as a layer's map that exist at once: scores, scores with the mask, weights, and casts."""
CHUNK_QUERIES = 256
GIB = 2**30


class _MapReader(SumsOfLayers):
    """A forward hook that adds up the map an attention module returns."""

    def refuse_if_too_large(
        self, module: nn.Module, arguments: tuple[Tensor, ...], keywords: dict[str, Tensor]
    ) -> None:
        """Raise MemoryError before a pass whose maps would not fit."""
        ids = keywords["input_ids"] if "input_ids" in keywords else arguments[0]
        config = module.config
        assert isinstance(config, PreTrainedConfig)
        heads = int(config.get_text_config(decoder=True).num_attention_heads)
        needed = MAP_COPIES * 4 * heads * ids.shape[-1] ** 2
        memory = devices.device_memory(ids.device)
        free = memory.total_bytes if memory.free_bytes is None else memory.free_bytes
        if needed > free:
            raise MemoryError(
                f"{type(module).__name__} gives its attention only as whole maps: for {ids.shape[-1]} tokens a layer "
                f"takes about {needed / GIB:.1f} GiB and {free / GIB:.1f} GiB are free; use a shorter prompt"
            )

    def read(self, module: nn.Module, arguments: object, output: tuple[Tensor, ...]) -> None:
        """Add up the map [1, H, S, S]. Raises FloatingPointError for a row that does not sum to 1 or sees too much."""
        maps = output[1]
        if not isinstance(maps, Tensor) or maps.dim() != 4 or maps.shape[0] != 1:
            raise UserError(f"{type(module).__name__} gives no attention map; choose another verifier")
        _, n_heads, n_queries, n_keys = maps.shape
        # Rows that were rounded to 16 bits do not sum to 1 exactly.
        self.row_tolerance = max(self.row_tolerance, torch.finfo(maps.dtype).eps)
        reach = _reach(module, n_keys)
        sums = self.new_layer(n_heads, n_keys, maps.device)
        for start in range(0, n_queries, CHUNK_QUERIES):
            weights = maps[0, :, start : start + CHUNK_QUERIES].float()
            rows = torch.arange(start, start + weights.shape[1], device=maps.device)[:, None]
            distance = rows - torch.arange(n_keys, device=maps.device)
            visible = (distance >= 0) & (distance < reach)
            if bool(weights.masked_fill(visible, 0.0).any()):
                raise FloatingPointError("a row of attention pays a position that it must not see")
            if not bool(((weights.sum(-1) - 1.0).abs() < self.row_tolerance).all()):
                raise FloatingPointError("a row of attention does not sum to 1")
            sums.add(weights, start, 0, visible)


def _reach(module: nn.Module, n_keys: int) -> int:
    """How many of the last keys a query sees; GPT-Neo has local layers."""
    if getattr(module, "attention_type", "global") != "local":
        return n_keys
    config = module.config
    assert isinstance(config, PreTrainedConfig)
    return int(config.window_size)


def _attention_modules(module: nn.Module) -> list[nn.Module]:
    """The innermost modules called attention; what surrounds one returns the same map again."""

    def named(part: nn.Module) -> bool:
        return "Attention" in type(part).__name__

    return [part for part in module.modules() if named(part) and not any(named(p) for p in part.children())]


@contextmanager
def hooked_maps(
    module: PreTrainedModel, n_layers: int, window: int, first_query: int, generating: GeneratingQueries | None = None
) -> Iterator[SumsOfLayers]:
    """Within this block, one forward pass of `module` adds up its attention; afterwards it runs as before.

    Raises UserError for an architecture whose maps nobody has checked, or that are not those of the model as it runs.
    """
    if module.config.model_type not in FAMILIES:
        raise UserError(
            f"the attention of a {module.config.model_type} model cannot be measured: it calls no attention function "
            "of transformers, and nobody has checked the maps that it gives; choose another verifier"
        )
    config = module.config
    if config.model_type == "falcon" and config.alibi and config._attn_implementation != "eager":
        # transformers adds the bias to the mask for both ways of computing, and eager adds it once more.
        raise UserError(
            "the attention of a Falcon model with ALiBi cannot be measured: its maps count the bias twice and so are "
            "not those of the model that decodes; choose another verifier"
        )
    reader = _MapReader(n_layers, window, first_query, generating)
    # Set in the configuration itself: the method that sets it for other models refuses these.
    before, config._attn_implementation = config._attn_implementation, "eager"
    handles = [module.register_forward_pre_hook(reader.refuse_if_too_large, with_kwargs=True)]
    handles += [part.register_forward_hook(reader.read) for part in _attention_modules(module)]
    try:
        yield reader
    finally:
        for handle in handles:
            handle.remove()
        config._attn_implementation = before
