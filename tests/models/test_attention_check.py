"""The attention that a model runs with against explicit attention: sound kernels pass, planted faults do not."""

from __future__ import annotations

from typing import Any

import pytest
import tiny
import torch
from attention_models import by_function, by_maps, language_model
from torch import Tensor
from torch.nn import functional

from specstudy.measure.rounding import ATTENTION_LIMITS
from specstudy.models.attention_check import attention_errors, explicit_attention

IDS = torch.arange(1, 41)
# Their attention has scores of its own kind, which SDPA does not know.
EAGER = ("soft-capped", "sink parameter")


@pytest.mark.parametrize("dtype", ATTENTION_LIMITS, ids=str)
@pytest.mark.parametrize("kind", ["llama", "one key head", "own head size", "alternating", "chunked"])
def test_sound_attention_is_within_its_limit(kind: str, dtype: torch.dtype) -> None:
    model = language_model(by_function()[kind])
    model.module.to(dtype)
    before = model.attention
    errors = attention_errors(model, IDS, 5)
    assert len(errors) == 3 * (2 if kind == "alternating" else 1)
    assert max(errors) < ATTENTION_LIMITS[dtype] / 3
    assert model.attention == before


@pytest.mark.parametrize("kind", [*EAGER, *by_maps()])
def test_models_without_a_kernel_have_nothing_to_check(kind: str) -> None:
    assert attention_errors(language_model({**by_function(), **by_maps()}[kind]), IDS, 5) == []


def test_explicit_attention_by_hand() -> None:
    key = torch.tensor([[0.0], [0.0], [50.0]])[None, None]
    value = torch.tensor([[1.0], [3.0], [8.0]])[None, None]
    query = torch.ones(1, 2, 3, 1)
    expected = [[1.0, 2.0, 8.0]] * 2
    assert explicit_attention(query, key, value, None, 1.0)[0, :, :, 0].T.tolist() == expected
    # Two queries over three keys stand at the end.
    assert explicit_attention(query[:, :, 1:], key, value, None, 1.0)[0, :, :, 0].T.tolist() == [[2.0, 8.0]] * 2
    seen = torch.tensor([[True, True, True], [False, True, True], [False, True, False]])[None, None]
    found = explicit_attention(query[:, :, 1:], key, value, seen[:, :, 1:], 1.0)
    assert found[0, :, :, 0].T.tolist() == [[3.0, 3.0]] * 2
    # A mask lets nobody see what is to come.
    assert explicit_attention(query, key, value, torch.ones_like(seen), 1.0)[0, :, :, 0].T.tolist() == expected


def masked_in_fours(query: Tensor, key: Tensor, value: Tensor, **given: Any) -> Tensor:
    """One causal mask for each four queries, that of the last."""
    n, n_keys = query.shape[-2], key.shape[-2]
    places = torch.arange(n) + n_keys - n
    seen = torch.arange(n_keys) <= (places | 3)[:, None]
    scores = query.float() @ key.float().repeat_interleave(query.shape[1] // key.shape[1], 1).transpose(-1, -2)
    weights = (scores * query.shape[-1] ** -0.5).masked_fill(~seen, -torch.inf).softmax(-1)
    return (weights @ value.float().repeat_interleave(query.shape[1] // key.shape[1], 1)).to(query.dtype)


@pytest.mark.parametrize("where", ["prefill", "cached"])
def test_a_leak_of_later_tokens_in_half_precision_is_seen(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.llama()
    model.module.to(torch.bfloat16)
    real = functional.scaled_dot_product_attention

    def leaking(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **given: Any) -> Tensor:
        if where == "prefill" and given.get("is_causal"):
            return masked_in_fours(query, key, value)
        if where == "cached" and attn_mask is not None:
            attn_mask = torch.zeros_like(attn_mask)
        return real(query, key, value, attn_mask=attn_mask, **given)

    assert max(attention_errors(model, IDS, 5)) < ATTENTION_LIMITS[torch.bfloat16]
    monkeypatch.setattr(functional, "scaled_dot_product_attention", leaking)
    assert max(attention_errors(model, IDS, 5)) > 3 * ATTENTION_LIMITS[torch.bfloat16]
