"""Attention reduced inside the layer against the full eager maps of plain transformers, and what is refused."""

from __future__ import annotations

from typing import Any

import attention_models
import numpy as np
import pytest
import tiny
import torch
from numpy.typing import NDArray
from transformers import XGLMConfig

from specstudy.errors import UserError
from specstudy.measure import sinks
from specstudy.measure.decode import attention_from_generated
from specstudy.models import attention, attention_maps
from specstudy.models import device as devices
from specstudy.models.attention import reduced_attention
from specstudy.models.cache import CachedModel
from specstudy.models.load import LanguageModel

Floats = NDArray[np.float64]
BY_FUNCTION, BY_MAPS = attention_models.by_function(), attention_models.by_maps()
ALL = {**BY_FUNCTION, **BY_MAPS}
N_TOKENS, WINDOW = 40, 16
IDS: list[int] = np.random.default_rng(0).integers(0, tiny.VOCABULARY, N_TOKENS).tolist()


@pytest.fixture(scope="module", params=ALL)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(kind: str) -> LanguageModel:
    return attention_models.language_model(ALL[kind])


@pytest.fixture(scope="module")
def maps(model: LanguageModel) -> Floats:
    return attention_models.eager_maps(model, IDS)


def entropy_bits(weights: Floats) -> Floats:
    """Of the distribution over keys, along the last axis."""
    p = weights / weights.sum(-1, keepdims=True)
    return -(p * np.log2(np.where(p > 0, p, 1.0))).sum(-1)


@pytest.mark.parametrize(("elements", "fewest"), [(1, 1), (1, 7), (1000, 1), (10**9, 16)])
def test_sums_equal_those_of_eager_maps(
    model: LanguageModel, maps: Floats, elements: int, fewest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "CHUNK_ELEMENTS", elements)
    monkeypatch.setattr(attention, "FEWEST_QUERIES", fewest)
    monkeypatch.setattr(attention_maps, "CHUNK_QUERIES", fewest)
    sums = sinks.prefill_sums(model, IDS, WINDOW)
    np.testing.assert_allclose(sums.column_sums.numpy(), maps.sum(2), rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(sums.window_sums.numpy(), maps[:, :, -WINDOW:].sum(2), rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(sums.boundary_entropy_bits.numpy(), entropy_bits(maps[:, :, -1]), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(sums.visible_queries.numpy(), (maps > 0).sum(2)[:, 0])
    np.testing.assert_allclose(sums.paid_to_no_key.numpy(), N_TOKENS - maps.sum((2, 3)), rtol=1e-5, atol=1e-4)


def test_measures_follow_their_definitions(kind: str, model: LanguageModel, maps: Floats) -> None:
    found = sinks.received(sinks.prefill_sums(model, IDS, WINDOW))
    visible = (maps > 0).sum(2)
    np.testing.assert_allclose(found.per_visible_query, (maps.sum(2) / visible).mean((0, 1)), rtol=1e-5)
    np.testing.assert_allclose(found.per_head, maps.sum(2) / visible, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(found.share, maps.sum(2).mean((0, 1)) / N_TOKENS, rtol=1e-5)
    np.testing.assert_allclose(
        found.window, maps[:, :, -WINDOW:, : N_TOKENS - WINDOW].mean((0, 1, 2)), rtol=1e-5, atol=1e-9
    )
    if kind == "sink parameter":
        assert 0.2 < found.share.sum() < 0.9
    else:
        assert found.share.sum() == pytest.approx(1.0, abs=1e-5)


def test_only_counted_queries_count(model: LanguageModel, maps: Floats, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "CHUNK_ELEMENTS", 1)
    monkeypatch.setattr(attention, "FEWEST_QUERIES", 7)
    sums = sinks.prefill_sums(model, IDS, 3, first_query=30)
    np.testing.assert_allclose(sums.column_sums.numpy(), maps[:, :, 30:].sum(2), rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(sums.window_sums.numpy(), maps[:, :, -3:].sum(2), rtol=1e-5, atol=2e-6)
    np.testing.assert_array_equal(sums.visible_queries.numpy(), (maps[:, :, 30:] > 0).sum(2)[:, 0])
    np.testing.assert_allclose(sums.paid_to_no_key.numpy(), 10 - maps[:, :, 30:].sum((2, 3)), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("fewest_queries", [attention.FEWEST_QUERIES, 3])
def test_attention_from_generated_counts_the_answer_alone(
    model: LanguageModel, maps: Floats, fewest_queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "CHUNK_ELEMENTS", 1)
    monkeypatch.setattr(attention, "FEWEST_QUERIES", fewest_queries)
    cached = CachedModel(model)
    cached.prefill(torch.tensor(IDS[:33]))  # what it holds beyond the prompt is taken back
    found = attention_from_generated(sinks.answer_sums(cached, IDS[:29], IDS[29:]), 29, len(IDS) - 29)
    np.testing.assert_allclose(found, maps[:, :, 29:, :29].mean((0, 1, 2)), rtol=1e-5, atol=1e-9)


def test_the_output_is_that_of_the_model(kind: str) -> None:
    model = attention_models.language_model(ALL[kind])
    tokens = torch.tensor([IDS])
    before = model.module.config._attn_implementation
    plain = model.module(input_ids=tokens, use_cache=False).logits
    with reduced_attention(model.module, model.dimensions.n_layers, WINDOW):
        measured = model.module(input_ids=tokens, use_cache=False).logits
    if kind in ("soft-capped", "sink parameter") or kind.startswith("falcon"):
        torch.testing.assert_close(measured, plain, rtol=1e-4, atol=1e-4)
    else:
        assert torch.equal(plain, measured)
    assert model.module.config._attn_implementation == before
    assert torch.equal(model.module(input_ids=tokens, use_cache=False).logits, plain)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.module.modules())


@pytest.mark.parametrize("name", ["llama", "soft-capped", "sink parameter", "bloom"])
def test_half_precision_is_summed_in_float32(name: str) -> None:
    model = attention_models.language_model(ALL[name])
    rounded = {key: value.bfloat16().float() for key, value in model.module.state_dict().items()}
    model.module.load_state_dict(rounded)
    expected = attention_models.eager_maps(model, IDS)
    model.module.to(torch.bfloat16)
    found = sinks.prefill_sums(model, IDS, WINDOW)
    assert found.column_sums.dtype == torch.float32
    received = found.column_sums.numpy().mean((0, 1))
    # What is left is the rounding of the hidden states, not that of the sums.
    np.testing.assert_allclose(received, expected.sum(2).mean((0, 1)), rtol=0.15)
    totals = (found.column_sums.sum(-1) + found.paid_to_no_key).numpy()
    np.testing.assert_allclose(totals, N_TOKENS, rtol=1e-5 if name in BY_FUNCTION else 4e-3)


def test_a_prompt_of_one_token(model: LanguageModel) -> None:
    sums = sinks.prefill_sums(model, IDS[:1], WINDOW)
    assert sums.visible_queries.tolist() == [[1]] * model.dimensions.n_layers
    np.testing.assert_allclose((sums.column_sums[..., 0] + sums.paid_to_no_key).numpy(), 1.0, rtol=1e-5)


def test_layers_that_are_not_seen_are_noticed(model: LanguageModel) -> None:
    n_layers = model.dimensions.n_layers
    with reduced_attention(model.module, n_layers + 1, WINDOW) as sums:
        model.module(input_ids=torch.tensor([IDS]), use_cache=False)
    with pytest.raises(UserError, match=f"{n_layers} of {n_layers + 1} layers"):
        sums.finish()


def test_layers_of_different_numbers_of_heads_are_refused() -> None:
    function = attention._AttentionFunction(2, WINDOW, 0)
    for n_heads in (2, 4):
        q = torch.zeros(1, n_heads, 3, 4)
        function.attend(torch.nn.Module(), q, q, q, None)
    with pytest.raises(UserError, match="different numbers of attention heads"):
        function.finish()


@pytest.mark.parametrize("argument", [{"position_bias": torch.zeros(1)}, {"dropout": 0.1}, {"is_causal": False}])
def test_an_unknown_argument_is_an_error(argument: dict[str, Any]) -> None:
    function = attention._AttentionFunction(1, WINDOW, 0)
    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(UserError, match=next(iter(argument))):
        function.attend(torch.nn.Module(), q, q, q, None, **argument)
    function.attend(torch.nn.Module(), q, q, q, None, position_ids=torch.arange(3), position_bias=None)


def test_a_mask_that_shows_later_keys_is_an_error() -> None:
    function = attention._AttentionFunction(1, WINDOW, 0)
    q = torch.zeros(1, 2, 3, 4)
    for mask in (torch.ones(1, 1, 3, 3, dtype=torch.bool), torch.zeros(1, 1, 3, 3)):
        with pytest.raises(FloatingPointError, match="later key"):
            function.attend(torch.nn.Module(), q, q, q, mask)


@pytest.mark.parametrize("n_masks", [1, 2])
def test_what_a_mask_adds_to_scores_counts(n_masks: int) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 2, 5, 4, generator=generator) for _ in range(2))
    mask = torch.randn(1, n_masks, 5, 5, generator=generator).masked_fill(torch.ones(5, 5).triu(1) > 0, -3e38)
    function = attention._AttentionFunction(1, WINDOW, 0)
    function.attend(torch.nn.Module(), q, k, k, mask)
    expected = (q[0] @ k[0].mT / 2 + mask[0]).softmax(-1).sum(1)
    torch.testing.assert_close(function.finish().column_sums[0], expected)


def test_heads_that_see_different_keys_are_refused() -> None:
    function = attention._AttentionFunction(1, WINDOW, 0)
    q = torch.zeros(1, 2, 3, 4)
    mask = torch.ones(3, 3, dtype=torch.bool).tril().repeat(1, 2, 1, 1)
    mask[0, 1, 2, 0] = False
    with pytest.raises(UserError, match="heads see different keys"):
        function.attend(torch.nn.Module(), q, q, q, mask)


def test_attention_that_is_not_finite_is_an_error() -> None:
    model = tiny.llama(1)
    with torch.no_grad():
        model.module.model.layers[1].self_attn.q_proj.weight[0] = torch.nan
    with pytest.raises(FloatingPointError, match="do not sum to 1"):
        sinks.prefill_sums(model, IDS, WINDOW)


def spoilt_maps(model: LanguageModel, spoil: Any) -> None:
    """Let the second layer of a Bloom return maps that were changed."""

    def change(module: Any, arguments: Any, output: Any) -> Any:
        weights = output[1].clone()
        spoil(weights)
        return output[0], weights

    model.module.transformer.h[1].self_attention.register_forward_hook(change)


def test_maps_of_a_layer_are_checked_row_by_row() -> None:
    model = attention_models.language_model(BY_MAPS["bloom"])
    # The mean over rows stays 1.
    spoilt_maps(model, lambda w: (w[0, 0, 5].mul_(0.5), w[0, 0, 6].mul_(1.5)))
    with pytest.raises(FloatingPointError, match="does not sum to 1"):
        sinks.prefill_sums(model, IDS, WINDOW)


def test_maps_that_pay_later_keys_are_an_error() -> None:
    model = attention_models.language_model(BY_MAPS["bloom"])
    spoilt_maps(model, lambda w: w[0, 2, 7, 9].fill_(0.1))
    with pytest.raises(FloatingPointError, match="must not see"):
        sinks.prefill_sums(model, IDS, WINDOW)


def test_maps_that_do_not_fit_are_refused_before_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    model = attention_models.language_model(BY_MAPS["bloom"])
    monkeypatch.setattr(devices, "device_memory", lambda device: devices.DeviceMemory(10_000, None))
    with pytest.raises(MemoryError, match="use a shorter prompt") as raised:
        sinks.prefill_sums(model, IDS, WINDOW)
    assert devices.is_out_of_memory(raised.value)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.module.modules())


def test_maps_that_nobody_checked_are_refused() -> None:
    few = {"vocab_size": tiny.VOCABULARY, "d_model": 32, "ffn_dim": 48, "num_layers": 3, "attention_heads": 4}
    with pytest.raises(UserError, match="xglm"):
        sinks.describe_attention(tiny.language_model(XGLMConfig(**few)))


def test_falcon_with_alibi_is_refused_where_its_maps_are_of_another_model() -> None:
    model = attention_models.language_model(attention_models.falcon_with_alibi())
    with pytest.raises(UserError, match="count the bias twice"):
        sinks.describe_attention(model)
    # That they are is seen here; where it ends, this measure can come back.
    with torch.no_grad():
        plain = model.module(input_ids=torch.tensor([IDS])).logits
        model.module.config._attn_implementation = "eager"
        eager = model.module(input_ids=torch.tensor([IDS])).logits
    assert (plain - eager).abs().max() > 0.01
    np.testing.assert_allclose(
        sinks.prefill_sums(model, IDS, WINDOW).column_sums.numpy(),
        attention_models.eager_maps(model, IDS).sum(2),
        rtol=1e-5,
        atol=2e-6,
    )


def test_how_attention_is_measured_is_described(kind: str, model: LanguageModel) -> None:
    described = sinks.describe_attention(model)
    way = "the attention function" if kind in BY_FUNCTION else "eager maps of a layer"
    assert described == {"measured_in": way, "has_sink_parameter": kind == "sink parameter"}


def test_likelihoods_are_those_of_an_uncached_pass(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "BLOCK_TOKENS", 7)
    logprobs = torch.log_softmax(tiny.uncached_logits(model, IDS), -1)
    expected = -logprobs[torch.arange(N_TOKENS - 1), torch.tensor(IDS[1:])].numpy() / np.log(2)
    np.testing.assert_allclose(sinks.negative_log2_likelihoods(model, IDS), expected, rtol=1e-4, atol=1e-4)
