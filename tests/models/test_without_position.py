"""A hidden position is hidden from every later query, with a cache and without, and nothing is left behind."""

import pytest
import torch
from tiny import configurations, language_model, llama, logits_without_position, uncached_logits
from transformers import PreTrainedConfig

from specstudy.errors import UserError
from specstudy.models.cache import CachedModel
from specstudy.models.without_position import without_position

IDS = [3, 17, 5, 41, 8, 29, 11, 2, 50, 7, 33, 21]


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


MASKABLE = {name: config for name, config in configurations().items() if name != "soft-capped"}


@pytest.mark.parametrize("config", MASKABLE.values(), ids=MASKABLE.keys())
def test_cached_equals_uncached(config: PreTrainedConfig) -> None:
    model = language_model(config)
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


def test_another_model_is_not_touched() -> None:
    verifier, draft = llama(0), llama(1)
    before = uncached_logits(draft, IDS)
    with without_position(verifier.module, 0):
        assert torch.equal(uncached_logits(draft, IDS), before)


def test_eager_attention_is_refused() -> None:
    model = language_model(configurations()["soft-capped"])
    model.module.set_attn_implementation("eager")
    with pytest.raises(UserError, match="runs eager"), without_position(model.module, 0):
        pass
