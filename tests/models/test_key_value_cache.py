"""The cache: lengths, rollback, spare room, sliding windows."""

import pytest
import tiny
import torch
from transformers import LlamaConfig

from specstudy.models import cache as caches
from specstudy.models.cache import CachedModel, PreallocatedLayer

CONFIGURATIONS = tiny.configurations()
IDS = torch.tensor([3, 5, 7, 11, 2, 40, 8, 9, 1, 4, 6, 30, 31, 32, 33, 34, 35, 36, 37, 38])


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize(("held", "kept"), [(20, 15), (20, 20), (20, 3), (12, 0), (6, 5)])
def test_after_a_rollback_the_next_logits_are_those_of_an_uncached_pass(name, held, kept):
    model = tiny.language_model(CONFIGURATIONS[name], seed=1)
    cached = CachedModel(model)
    cached.forward(IDS[: held - 2], keep=1)
    if kept < held - 2:
        # Beyond a sliding window, only what came since the last rollback can be taken back.
        cached = CachedModel(model)
        if kept:
            cached.forward(IDS[:kept], keep=1)
            cached.rollback(kept)
        cached.forward(IDS[kept : held - 2] + 1, keep=1)
    cached.forward(IDS[held - 2 : held] + 2, keep=2)
    cached.rollback(kept)
    cached.check_length()
    assert cached.length == kept
    logits = cached.forward(IDS[kept : kept + 1] if kept < 20 else IDS[:1], keep=1)
    text = [*IDS[:kept].tolist(), int(IDS[kept] if kept < 20 else IDS[0])]
    if kept == held:
        text[-3:-1] = [int(i) + 2 for i in IDS[held - 2 : held]]
    if kept == held - 1:
        text[-2] = int(IDS[kept - 1]) + 2
    torch.testing.assert_close(logits[0], tiny.uncached_logits(model, text)[-1], atol=2e-4, rtol=1e-4)


def test_rolling_forward_is_refused():
    cached = CachedModel(tiny.llama())
    cached.forward(IDS[:4], keep=1)
    with pytest.raises(ValueError, match="from 4 to 5"):
        cached.rollback(5)


def test_a_cache_that_is_off_by_one_is_noticed():
    cached = CachedModel(tiny.llama())
    cached.forward(IDS[:4], keep=1)
    cached.length = 3
    with pytest.raises(AssertionError, match=r"\[4\] tokens, not 3"):
        cached.check_length()


def test_room_grows_by_doubling_and_keeps_what_it_holds(monkeypatch):
    monkeypatch.setattr(caches, "FIRST_ROOM", 4)
    layer = PreallocatedLayer()
    keys = torch.randn(1, 2, 30, 3)
    held = torch.zeros(1, 2, 0, 3)
    for start, stop in ((0, 3), (3, 4), (4, 9), (9, 30)):
        got, values = layer.update(keys[:, :, start:stop], -keys[:, :, start:stop])
        assert torch.equal(got, keys[:, :, :stop])
        assert torch.equal(values, -got)
    layer.crop(-20)
    got, _ = layer.update(held, held)
    assert torch.equal(got, keys[:, :, :10])
    assert layer.get_seq_length() == 10


def test_only_full_attention_layers_are_given_room():
    kinds = {type(layer).__name__ for layer in caches.preallocated_cache(CONFIGURATIONS["alternating"]).layers}
    assert kinds == {"PreallocatedLayer", "DynamicSlidingWindowLayer"}
    assert len(caches.preallocated_cache(LlamaConfig(num_hidden_layers=3)).layers) == 3
