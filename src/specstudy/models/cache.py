"""The key-value caches that everything is measured with: forward, length, rollback."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, PreTrainedConfig
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from specstudy.models.load import LanguageModel

FIRST_ROOM = 512


class PreallocatedLayer(DynamicLayer):
    """A full-attention layer that keeps spare room, so that a new token is written in place.

    The library's layer copies every earlier key and value for each new token; here that happens only when the room,
    which doubles, is used up. `keys` and `values` are views of the tokens held.
    """

    def __init__(self) -> None:
        super().__init__()
        self._rooms: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append [B, KV, n, D] and return all keys and values."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        held = self.get_seq_length()
        total = held + key_states.shape[-2]
        if self._rooms is None or total > self._rooms[0].shape[-2]:
            self._move(key_states, value_states, held, max(FIRST_ROOM, 2 * total))
        assert self._rooms is not None
        for room, new in zip(self._rooms, (key_states, value_states), strict=True):
            room.narrow(2, held, total - held).copy_(new)
        self.keys, self.values = (room.narrow(2, 0, total) for room in self._rooms)
        return self.keys, self.values

    def _move(self, key_states: Tensor, value_states: Tensor, held: int, size: int) -> None:
        rooms = []
        for old, new in ((self.keys, key_states), (self.values, value_states)):
            room = new.new_empty(*new.shape[:2], size, new.shape[-1])
            if held:
                room[:, :, :held] = old
            rooms.append(room)
        self._rooms = (rooms[0], rooms[1])

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last `-tokens_to_remove` tokens. Slicing as the library does takes longer, in every round."""
        if tokens_to_remove < 0 and self._rooms is not None:
            total = self.keys.shape[2] + tokens_to_remove
            self.keys, self.values = self.keys.narrow(2, 0, total), self.values.narrow(2, 0, total)
        else:
            super().crop(tokens_to_remove)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every row `repeats` times."""
        super().batch_repeat_interleave(repeats)
        self._rooms = None


def preallocated_cache(config: PreTrainedConfig) -> Cache:
    """The cache that a model of this configuration needs, its full-attention layers with spare room."""
    cache = DynamicCache(config=config)
    cache.layers = [PreallocatedLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def sliding_windows(config: PreTrainedConfig) -> list[int | None]:
    """For each layer how many of the last tokens it sees, None for all."""
    layers = DynamicCache(config=config).layers
    windows = [layer.sliding_window if isinstance(layer, DynamicSlidingWindowLayer) else None for layer in layers]
    kinds = getattr(config.get_text_config(decoder=True), "layer_types", None)
    # A layer that attends to another's keys and values has none to tell its window.
    of_kind = {kind: window for kind, window in zip(kinds or [], windows, strict=False) if window}
    return [of_kind.get(kind) for kind in kinds] if kinds else windows


class CachedModel:
    """A model and the keys and values of the tokens that it has seen.

    `length` is the number of cached tokens. After every `rollback` it is checked to be that of every layer: a cache
    that is off by one still gives text that reads well.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.length = 0
        self._cache: Cache = self._new_cache()

    def _new_cache(self) -> Cache:
        cache = preallocated_cache(self.model.module.config)
        # Sliding-window layers drop what leaves the window, unless told to keep it until the next rollback.
        cache.activate_past_recording()
        return cache

    @torch.inference_mode()
    def forward(self, ids: Tensor, keep: int, among: Tensor | None = None) -> Tensor:
        """Feed ids [n] (int64) after what is cached; float32 logits [keep, vocabulary] of the last `keep` of them.

        `among` [K], ids that a token has: only their logits [keep, K].
        """
        n_new = ids.shape[0]
        output = self.model.module(input_ids=ids[None], cache=self._cache, use_cache=True, logits_to_keep=keep)
        self.length += n_new
        return self.model.emittable_logits(output.logits[0]) if among is None else output.logits[0][:, among].float()

    @torch.inference_mode()
    def forward_rows(self, ids: Tensor) -> Tensor:
        """Feed one id to each row, ids [R] (int64); float32 logits [R, vocabulary]."""
        output = self.model.module(input_ids=ids[:, None], cache=self._cache, use_cache=True, logits_to_keep=1)
        self.length += 1
        return self.model.emittable_logits(output.logits[:, -1])

    @torch.inference_mode()
    def repeated(self, n_rows: int) -> CachedModel:
        """A copy with `n_rows` rows that hold the tokens of this one's single row; this one stays as it is."""
        rows = copy.copy(self)
        rows._cache = copy.deepcopy(self._cache)
        rows._cache.batch_repeat_interleave(n_rows)
        return rows

    @torch.inference_mode()
    def prefill(self, ids: Tensor) -> None:
        """Feed ids [n] for their keys and values alone; n may be 0."""
        if ids.shape[0]:
            self.model.module(input_ids=ids[None], cache=self._cache, use_cache=True, logits_to_keep=1)
            self.length += ids.shape[0]
            self.rollback(self.length)

    def rollback(self, length: int) -> None:
        """Forget every token after the first `length`."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back from {self.length} to {length} cached tokens")
        if self.length:
            # A count of 0 still matters: it lets sliding-window layers drop what they kept for this call.
            self._cache.crop(-(self.length - length))
        self.length = length
        self.check_length()

    def check_length(self) -> None:
        """Raise AssertionError unless every layer that keeps keys and values holds exactly `length` tokens."""
        held = {layer.get_seq_length() for layer in self._cache.layers if isinstance(layer, CacheLayerMixin)}
        assert held <= {self.length}, f"the cache's layers hold {sorted(held)} tokens, not {self.length}"
