"""Lowered scores against attention written out, with a cache and without, in rows, while measured; what is refused."""

from __future__ import annotations

from typing import Any

import attention_models
import pytest
import torch
from tiny import llama, logits_without_position, uncached_logits
from torch import Tensor, nn
from transformers.masking_utils import sdpa_mask

from specstudy.errors import UserError
from specstudy.measure.sinks import answer_sums, prefill_sums
from specstudy.models.attention_check import attention_errors
from specstudy.models.attention_functions import attending_by
from specstudy.models.cache import CachedModel
from specstudy.models.load import LanguageModel
from specstudy.models.lowered_scores import lowered_scores

IDS = [3, 17, 5, 41, 8, 29, 11, 2, 50, 7, 33, 21, 13, 4]
BY = 2.0
REFUSED = ("soft-capped", "sink parameter")
KINDS = [name for name in attention_models.by_function() if name not in REFUSED]


def model_of(kind: str) -> LanguageModel:
    return attention_models.language_model(attention_models.by_function()[kind])


def positions_of(model: LanguageModel) -> Tensor:
    """[L, H]: another key for each head, some of them behind the first window of a sliding one."""
    config = model.module.config.get_text_config(decoder=True)
    shape = config.num_hidden_layers, config.num_attention_heads
    return torch.arange(shape[0] * shape[1]).reshape(shape) * 5 % 11


class Explicit:
    """Attention written out head by head, and the maps [layer][B, H, S, S] that it came from."""

    def __init__(self, positions: Tensor, by: float) -> None:
        self.positions, self.by = positions, by
        self.maps: dict[int, Tensor] = {}

    def attend(
        self, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float, **others: Any
    ) -> tuple[Tensor, None]:
        heads, maps = [], []
        for head in range(query.shape[1]):
            of_keys = head // (query.shape[1] // key.shape[1])
            scores = query[:, head] @ key[:, of_keys].mT * scaling
            lowered = int(self.positions[module.layer_idx, head])
            scores[:, lowered + 1 :, lowered] -= self.by
            maps.append(scores.masked_fill(~mask[:, 0], -torch.inf).softmax(-1))
            heads.append(maps[-1] @ value[:, of_keys])
        self.maps[module.layer_idx] = torch.stack(maps, 1)
        return torch.stack(heads, 2), None


@torch.inference_mode()
def explicit_logits(model: LanguageModel, positions: Tensor, by: float = BY) -> tuple[Tensor, Tensor]:
    """Logits [S, V] and maps [L, H, S, S]."""

    def mask(*given: Any, allow_is_causal_skip: bool = True, **others: Any) -> Tensor | None:
        made: Tensor | None = sdpa_mask(*given, allow_is_causal_skip=False, **others)
        return made

    explicit = Explicit(positions, by)
    with attending_by(model.module, "explicit_in_tests", explicit.attend, mask):
        logits = uncached_logits(model, IDS)
    return logits, torch.stack([explicit.maps[layer][0] for layer in sorted(explicit.maps)])


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_lowered_as_written_out_and_attention_is_measured_so(kind: str) -> None:
    model = model_of(kind)
    positions = positions_of(model)
    plain = uncached_logits(model, IDS)
    expected, maps = explicit_logits(model, positions)
    assert (plain - expected).abs().max() > 1e-2
    with lowered_scores(model.module, positions, BY):
        torch.testing.assert_close(uncached_logits(model, IDS), expected, atol=1e-4, rtol=1e-4)
        sums = prefill_sums(model, IDS, window=3)
        late = answer_sums(CachedModel(model), IDS[:1], IDS[1:]) if kind == "llama" else None
    torch.testing.assert_close(sums.column_sums, maps.sum(2), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(sums.window_sums, maps[:, :, -3:].sum(2), atol=1e-5, rtol=1e-4)
    if late:
        torch.testing.assert_close(late.column_sums, maps[:, :, 1:].sum(2), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(uncached_logits(model, IDS), plain, rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_cached_equals_uncached(kind: str) -> None:
    model = model_of(kind)
    positions = positions_of(model)
    expected, _ = explicit_logits(model, positions)
    with lowered_scores(model.module, positions, BY):
        cached = CachedModel(model)
        cached.prefill(torch.tensor(IDS[:5]))
        got = [cached.forward(torch.tensor(IDS[5:9]), keep=4)]
        cached.rollback(7)
        got.append(cached.forward(torch.tensor(IDS[7:8]), keep=1))
        got.append(cached.forward(torch.tensor(IDS[8:]), keep=6))
    torch.testing.assert_close(got[0], expected[5:9], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(torch.cat(got[1:]), expected[7:], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "sliding window", "learned positions"])
def test_rows_of_one_prompt_are_each_lowered(kind: str) -> None:
    model = model_of(kind)
    positions = positions_of(model)
    with lowered_scores(model.module, positions, BY):
        cached = CachedModel(model)
        cached.prefill(torch.tensor(IDS[:-2]))
        rows = cached.repeated(3)
        rows.forward_rows(torch.tensor([IDS[-2], 9, IDS[-2]]))
        got = rows.forward_rows(torch.tensor([IDS[-1], IDS[-1], 9]))
    expected, _ = explicit_logits(model, positions)
    torch.testing.assert_close(got[0], expected[-1], atol=1e-4, rtol=1e-4)
    assert (got[1:] - expected[-1]).abs().amax(-1).min() > 1e-2


def test_much_lowered_is_hidden_and_one_position_will_do_for_all_heads() -> None:
    model = llama()
    expected = logits_without_position(model, IDS, 4)
    with lowered_scores(model.module, torch.tensor([[4]]), 1e4):
        torch.testing.assert_close(uncached_logits(model, IDS), expected)


def test_odds_against_all_other_keys_fall_by_the_exponential() -> None:
    """In the first layer, where nothing else has changed yet."""
    model = model_of("llama")
    positions = torch.zeros(3, 4, dtype=torch.long)
    before = explicit_logits(model, positions, 0.0)[1][0, :, 1:, 0]
    after = explicit_logits(model, positions)[1][0, :, 1:, 0]
    torch.testing.assert_close(
        (after.logit() - before.logit()).exp(), torch.full_like(after, 0.1353353), rtol=1e-3, atol=0
    )


def test_two_models_are_lowered_each_at_its_own_keys() -> None:
    verifier, draft = llama(0), llama(1)
    first, second = positions_of(verifier), (positions_of(draft) + 3) % 11
    expected = [explicit_logits(verifier, first)[0], explicit_logits(draft, second, 1.0)[0]]
    with lowered_scores(verifier.module, first, BY), lowered_scores(draft.module, second, 1.0):
        for model, logits in zip((verifier, draft), expected, strict=True):
            torch.testing.assert_close(uncached_logits(model, IDS), logits, atol=1e-4, rtol=1e-4)


def test_half_precision_runs_and_is_checked_against_plain_arithmetic() -> None:
    model = model_of("llama")
    model.module.to(torch.bfloat16)
    with lowered_scores(model.module, positions_of(model), BY):
        errors = attention_errors(model, torch.tensor(IDS), 5)
    assert len(errors) >= 3
    assert max(errors) < 0.02


@pytest.mark.parametrize("kind", REFUSED)
def test_scores_that_are_not_plain_are_refused(kind: str) -> None:
    model = model_of(kind)
    with (
        pytest.raises((UserError, ValueError), match=r"eager|softcap"),
        lowered_scores(model.module, torch.tensor([[0]]), BY),
    ):
        uncached_logits(model, IDS)


def test_masks_that_nobody_knows_are_refused() -> None:
    model = llama()
    given = torch.ones(len(IDS), len(IDS), dtype=torch.bool).tril()[None, None]
    with (
        pytest.raises(UserError, match="scores cannot be lowered"),
        lowered_scores(model.module, torch.tensor([[0]]), BY),
    ):
        model.module(input_ids=torch.tensor([IDS]), attention_mask=given)
    model.module.model.layers[1].self_attn = nn.Identity()
    with (
        pytest.raises(UserError, match="scores cannot be lowered"),
        lowered_scores(model.module, torch.tensor([[0]]), BY),
    ):
        pass


def test_the_model_runs_as_before_even_after_a_fault() -> None:
    model = llama()
    before = uncached_logits(model, IDS)
    with pytest.raises(RuntimeError, match="fault"), lowered_scores(model.module, torch.tensor([[0]]), BY):
        raise RuntimeError("fault")
    assert torch.equal(uncached_logits(model, IDS), before)
    assert not any(part._forward_pre_hooks for part in model.module.modules())
