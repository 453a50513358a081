"""A hidden position is hidden from every later query, with a cache and without, and nothing is left behind."""

import attention_models
import pytest
import torch
from tiny import (
    configurations,
    language_model,
    llama,
    logits_without_position,
    logits_without_positions,
    uncached_logits,
)
from transformers import DynamicCache, PreTrainedConfig

from specstudy.errors import UserError
from specstudy.models.cache import CachedModel
from specstudy.models.without_position import without_position, without_positions

IDS = [3, 17, 5, 41, 8, 29, 11, 2, 50, 7, 33, 21]
MASKABLE = attention_models.by_function()
UNMASKABLE = {**attention_models.by_maps(), "falcon, alibi": attention_models.falcon_with_alibi()}
DROPPED, FIRST_QUERY = [0, 2, 3], 5


@pytest.mark.parametrize("position", [0, 4, len(IDS) - 1])
def test_the_same_as_an_explicit_mask(position: int) -> None:
    model = llama()
    expected = logits_without_position(model, IDS, position)
    with without_position(model.module, position):
        torch.testing.assert_close(uncached_logits(model, IDS), expected)
    plain = uncached_logits(model, IDS)
    torch.testing.assert_close(plain[: position + 1], expected[: position + 1])
    if position < len(IDS) - 1:
        assert (plain[position + 1 :] - expected[position + 1 :]).abs().max() > 1e-3


@pytest.mark.parametrize("config", MASKABLE.values(), ids=MASKABLE.keys())
def test_several_positions_are_hidden_from_a_query_on_in_every_kind_of_attention(config: PreTrainedConfig) -> None:
    model = attention_models.language_model(config)
    ids = IDS[:8]  # every window holds them all, so that one mask is that of every layer
    expected, plain = logits_without_positions(model, ids, DROPPED, FIRST_QUERY), uncached_logits(model, ids)
    with without_positions(model.module, DROPPED, FIRST_QUERY):
        torch.testing.assert_close(uncached_logits(model, ids), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(plain[:FIRST_QUERY], expected[:FIRST_QUERY], atol=1e-5, rtol=1e-5)
    assert (plain[FIRST_QUERY:] - expected[FIRST_QUERY:]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["llama", "one key head", "learned positions"])
def test_the_same_as_a_cache_whose_keys_are_taken_out(kind: str) -> None:
    """Keys are dropped from the cache's tensors after prefill; what comes after keeps its place in the text."""
    model = language_model(configurations()[kind])
    with torch.inference_mode():
        cache = DynamicCache(config=model.module.config)
        model.module(input_ids=torch.tensor([IDS[:FIRST_QUERY]]), cache=cache, use_cache=True)
        kept = [position for position in range(FIRST_QUERY) if position not in DROPPED]
        for layer in cache.layers:
            layer.keys, layer.values = layer.keys[:, :, kept], layer.values[:, :, kept]
        n_new = len(IDS) - FIRST_QUERY
        seen = torch.ones(n_new, len(kept) + n_new, dtype=torch.bool).tril(len(kept))
        output = model.module(
            input_ids=torch.tensor([IDS[FIRST_QUERY:]]),
            position_ids=torch.arange(FIRST_QUERY, len(IDS))[None],
            attention_mask=seen[None, None],
            cache=cache,
            use_cache=True,
        )
    cached = CachedModel(model)
    cached.prefill(torch.tensor(IDS[:FIRST_QUERY]))
    with without_positions(model.module, DROPPED, FIRST_QUERY):
        found = cached.forward(torch.tensor(IDS[FIRST_QUERY:]), keep=n_new)
    torch.testing.assert_close(found, output.logits[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("config", MASKABLE.values(), ids=MASKABLE.keys())
def test_cached_equals_uncached(config: PreTrainedConfig) -> None:
    model = attention_models.language_model(config)
    with without_position(model.module, 2):
        expected = uncached_logits(model, IDS)
        cached = CachedModel(model)
        cached.prefill(torch.tensor(IDS[:5]))
        got = [cached.forward(torch.tensor(IDS[5:9]), keep=4)]
        cached.rollback(7)
        got.append(cached.forward(torch.tensor(IDS[7:8]), keep=1))
        got.append(cached.forward(torch.tensor(IDS[8:]), keep=4))
    torch.testing.assert_close(got[0], expected[5:9], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(torch.cat(got[1:]), expected[7:], atol=1e-4, rtol=1e-4)


def test_the_model_runs_as_before_afterwards_even_after_a_fault() -> None:
    model = llama()
    before = uncached_logits(model, IDS)
    with pytest.raises(RuntimeError, match="fault"), without_position(model.module, 0):
        raise RuntimeError("fault")
    assert torch.equal(uncached_logits(model, IDS), before)


@pytest.mark.parametrize("kinds", [("llama", "llama"), ("soft-capped", "llama"), ("llama", "soft-capped")])
def test_another_model_is_not_touched(kinds: tuple[str, str]) -> None:
    verifier, draft = (language_model(configurations()[kind], seed) for seed, kind in enumerate(kinds))
    before, hidden = uncached_logits(draft, IDS[:8]), logits_without_position(draft, IDS[:8], 3)
    with without_position(verifier.module, 0):
        assert torch.equal(uncached_logits(draft, IDS[:8]), before)
        with without_position(draft.module, 3):
            torch.testing.assert_close(uncached_logits(draft, IDS[:8]), hidden, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("config", UNMASKABLE.values(), ids=UNMASKABLE.keys())
def test_a_model_that_would_not_use_the_mask_is_refused(config: PreTrainedConfig) -> None:
    model = attention_models.language_model(config)
    with pytest.raises(UserError, match=f"{config.model_type} model"), without_position(model.module, 0):
        pass
