"""The reducing attention function against full eager maps, and what it refuses."""

import numpy as np
import pytest
import tiny
import torch

from specstudy.errors import UserError
from specstudy.measure import sinks
from specstudy.models import attention
from specstudy.models.attention import reduced_attention

CONFIGURATIONS = tiny.configurations()
N_TOKENS, WINDOW = 40, 16


def eager_maps(model, ids):
    """[layers, heads, queries, keys] in float64."""
    model.module.set_attn_implementation("eager")
    with torch.no_grad():
        maps = model.module(input_ids=torch.tensor([ids]), output_attentions=True).attentions
    model.module.set_attn_implementation("sdpa")
    return torch.stack([layer[0] for layer in maps]).double().numpy()


@pytest.fixture(params=CONFIGURATIONS)
def model(request):
    return tiny.language_model(CONFIGURATIONS[request.param], seed=1)


@pytest.fixture
def ids():
    return np.random.default_rng(0).integers(0, tiny.VOCABULARY, N_TOKENS).tolist()


@pytest.mark.parametrize("chunk_elements", [1, 1000, 10**9])
def test_sums_equal_those_of_eager_maps(model, ids, chunk_elements, monkeypatch):
    monkeypatch.setattr(attention, "CHUNK_ELEMENTS", chunk_elements)
    maps = eager_maps(model, ids)
    sums = sinks.prefill_sums(model, ids, WINDOW)
    np.testing.assert_allclose(sums.column_sums.numpy(), maps.sum(2), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sums.window_sums.numpy(), maps[:, :, -WINDOW:].sum(2), rtol=1e-5, atol=1e-6)
    last = maps[:, :, -1]
    entropy = -(last * np.log2(np.where(last > 0, last, 1.0))).sum(-1)
    np.testing.assert_allclose(sums.boundary_entropy_bits.numpy(), entropy, rtol=1e-4, atol=1e-5)


def test_measures_follow_their_definitions(model, ids):
    maps = eager_maps(model, ids)
    sums = sinks.prefill_sums(model, ids, WINDOW)
    found = sinks.received(sums)
    visible = (maps > 0).sum(2)
    np.testing.assert_allclose(found.per_visible_query, (maps.sum(2) / visible).mean((0, 1)), rtol=1e-5)
    np.testing.assert_allclose(found.share, maps.sum(2).mean((0, 1)) / N_TOKENS, rtol=1e-5)
    assert found.share.sum() == pytest.approx(1.0, abs=1e-5)
    window = maps[:, :, -WINDOW:, : N_TOKENS - WINDOW].mean((0, 1, 2))
    np.testing.assert_allclose(found.window, window, rtol=1e-5, atol=1e-9)


def test_only_counted_queries_count(model, ids):
    maps = eager_maps(model, ids)
    sums = sinks.prefill_sums(model, ids, window=1, first_query=30)
    np.testing.assert_allclose(sums.column_sums.numpy(), maps[:, :, 30:].sum(2), rtol=1e-5, atol=1e-6)


def test_the_output_is_that_of_the_model(model, ids):
    tokens = torch.tensor([ids])
    plain = model.module(input_ids=tokens).logits
    with reduced_attention(model.module, WINDOW):
        measured = model.module(input_ids=tokens, use_cache=False).logits
    assert torch.equal(plain, measured)
    assert model.module.config._attn_implementation == "sdpa"


def test_half_precision_is_summed_in_float32(ids):
    model = tiny.llama(1)
    model.module.to(torch.bfloat16)
    sums = sinks.prefill_sums(model, ids, WINDOW)
    assert sums.column_sums.dtype == torch.float32
    np.testing.assert_allclose(sums.column_sums.sum(-1).numpy(), N_TOKENS, rtol=1e-5)


def test_layers_that_do_not_call_are_noticed(ids):
    model = tiny.llama(1)
    with reduced_attention(model.module, WINDOW) as collector:
        model.module(input_ids=torch.tensor([ids]), use_cache=False)
    with pytest.raises(UserError, match="3 of 4 layers"):
        collector.finish(4)


def test_an_unknown_argument_is_an_error(ids):
    collector = attention.Collector(WINDOW)
    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(UserError, match="softcap"):
        collector.attend(torch.nn.Module(), q, q, q, None, softcap=30.0)
    collector.attend(torch.nn.Module(), q, q, q, None, position_ids=torch.arange(3))


def test_attention_that_is_not_finite_is_an_error(ids):
    model = tiny.llama(1)
    with torch.no_grad():
        model.module.model.layers[1].self_attn.q_proj.weight[0] = torch.nan
    with pytest.raises(FloatingPointError, match="do not sum to 1"):
        sinks.prefill_sums(model, ids, WINDOW)


def test_likelihoods_are_those_of_an_uncached_pass(model, ids, monkeypatch):
    monkeypatch.setattr(sinks, "BLOCK_TOKENS", 7)
    logprobs = torch.log_softmax(tiny.uncached_logits(model, ids), -1)
    expected = -logprobs[torch.arange(N_TOKENS - 1), torch.tensor(ids[1:])].numpy() / np.log(2)
    np.testing.assert_allclose(sinks.negative_log2_likelihoods(model, ids), expected, rtol=1e-4, atol=1e-4)
