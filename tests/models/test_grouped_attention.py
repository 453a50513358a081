"""Queries that share keys, attended to as one block: against the library's own function."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from specstudy.models import grouped_attention
from specstudy.models.grouped_attention import MOST_QUERIES, attend

N_KEYS = 40


def tensors(n_heads: int, n_kv_heads: int, n_queries: int, n_keys: int = N_KEYS) -> tuple[Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    query = torch.randn(2, n_heads, n_queries, 8, generator=rng)
    # The values may be of another width than the keys.
    key, value = (torch.randn(2, n_kv_heads, n_keys, width, generator=rng) for width in (8, 6))
    return query, key, value


def last_queries_see(n_queries: int, n_keys: int = N_KEYS) -> Tensor:
    """[2, 1, S, T], causal; the second sequence does not see its first three keys (padding)."""
    mask = torch.ones(n_queries, n_keys, dtype=torch.bool).tril(n_keys - n_queries).expand(2, 1, -1, -1).clone()
    mask[1, :, :, :3] = False
    return mask


def attention_module(n_heads: int, n_kv_heads: int) -> Any:
    return SimpleNamespace(num_key_value_groups=n_heads // n_kv_heads, is_causal=True)


@pytest.mark.parametrize("n_queries", [1, 2, 5, MOST_QUERIES, MOST_QUERIES + 1])
@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(6, 2), (6, 1), (6, 6)])
@pytest.mark.parametrize("form", ["boolean", "added", "of each head"])
def test_the_output_is_the_librarys(n_queries: int, n_heads: int, n_kv_heads: int, form: str) -> None:
    query, key, value = tensors(n_heads, n_kv_heads, n_queries)
    seen = last_queries_see(n_queries)
    mask = seen if form == "boolean" else torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    if form == "of each head":
        mask = mask + torch.randn(1, n_heads, 1, N_KEYS, generator=torch.Generator().manual_seed(1))
    arguments = (attention_module(n_heads, n_kv_heads), query, key, value, mask)
    torch.testing.assert_close(attend(*arguments, scaling=0.3)[0], sdpa_attention_forward(*arguments, scaling=0.3)[0])


@torch.inference_mode()
def test_layers_of_one_pass_share_what_is_made_of_its_mask_and_no_other_pass_sees_it() -> None:
    seen = [last_queries_see(5), last_queries_see(5)]
    seen[1][:, :, :, 7] = False
    for mask in (seen[0], seen[1], seen[0]):
        for n_heads, n_kv_heads in ((6, 2), (8, 2), (6, 2)):
            for dtype in (torch.float32, torch.float64):
                query, key, value = (t.to(dtype) for t in tensors(n_heads, n_kv_heads, 5))
                arguments = (attention_module(n_heads, n_kv_heads), query, key, value, mask)
                torch.testing.assert_close(attend(*arguments)[0], sdpa_attention_forward(*arguments)[0])
    assert grouped_attention._of_blocks(seen[0], 3, torch.float32) is grouped_attention._of_blocks(
        seen[0], 3, torch.float32
    )
    n_held = len(grouped_attention._masks_of_blocks)
    del mask, arguments
    seen.clear()
    assert len(grouped_attention._masks_of_blocks) == n_held - 2


def test_one_query_without_a_mask_sees_every_key() -> None:
    query, key, value = tensors(6, 2, 1)
    weights = (query.view(2, 2, 3, 8) @ key.mT * 0.3).softmax(-1)
    expected = (weights @ value).view(2, 6, 1, 6).transpose(1, 2)
    found, maps = attend(attention_module(6, 2), query, key, value, None, scaling=0.3)
    assert maps is None
    torch.testing.assert_close(found, expected)


def test_a_prompt_without_a_mask_is_causal() -> None:
    query, key, value = tensors(6, 2, N_KEYS)
    module = attention_module(6, 2)
    found, _ = attend(module, query, key, value, None)
    first, _ = attend(module, query[:, :, :1], key[:, :, :1], value[:, :, :1], None)
    torch.testing.assert_close(found[:, :1], first)


@pytest.mark.parametrize("others", [{"dropout": 0.5}, {"position_bias": torch.ones(1)}, {"softcap": 30.0}])
def test_other_arithmetic_is_left_to_the_library(others: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def noting(*arguments: Any, **named: Any) -> str:
        asked.append(named)
        return "the library's"

    monkeypatch.setattr(grouped_attention, "sdpa_attention_forward", noting)
    assert attend(attention_module(6, 2), *tensors(6, 2, 1), None, **others) == "the library's"
    assert others.items() <= asked[0].items()


def test_a_mask_for_each_head_is_left_to_the_library() -> None:
    query, key, value = tensors(6, 2, 3)
    mask = torch.rand(2, 6, 3, N_KEYS, generator=torch.Generator().manual_seed(1)) > 0.3
    arguments = (attention_module(6, 2), query, key, value, mask)
    torch.testing.assert_close(attend(*arguments)[0], sdpa_attention_forward(*arguments)[0])
