"""A mixture of experts made from a dense model: its neurons, its router, and the draft that goes with it."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
import torch

from specstudy.models import embedded, upcycled
from specstudy.models.load import load_pair
from specstudy.models.routers import expert_layers, watched_routers
from specstudy.models.sources import find_source, trunk_of

IDS = torch.arange(48).view(4, 12) * 7 % tiny.VOCABULARY


@torch.inference_mode()
def test_with_all_experts_on_and_equal_gates_it_is_the_dense_model() -> None:
    dense = tiny.llama(tie_word_embeddings=True)
    mixture = upcycled.upcycle(dense.module, IDS, n_experts=4, n_chosen=4, shared_share=1 / 3)
    text = torch.tensor([[3, 1, 4, 1, 5, 9]])
    for layer in expert_layers(mixture, "mixture"):
        layer.router.weight.zero_()
    expected = dense.module(input_ids=text, use_cache=False).logits
    torch.testing.assert_close(mixture(input_ids=text, use_cache=False).logits, expected, atol=1e-4, rtol=1e-4)
    assert not any(module._forward_hooks for module in dense.module.modules())


def test_it_can_be_saved(tmp_path: Path) -> None:
    mixture = upcycled.upcycle(tiny.llama(tie_word_embeddings=True).module, IDS, 4, 2, 1 / 3)
    mixture.to(torch.bfloat16).save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").is_file()


def test_the_same_model_comes_of_it_every_time() -> None:
    first, second = (
        upcycled.upcycle(tiny.llama().module, IDS, n_experts=4, n_chosen=2, shared_share=1 / 3).state_dict()
        for _ in range(2)
    )
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_neurons_that_are_active_together_share_an_expert() -> None:
    tokens = torch.arange(40)
    even = (tokens % 2 == 0).float()
    busy = torch.full((40, 2), 9.0)
    groups = torch.stack([even, 1 - even, even, 1 - even], dim=1) * (1 + 0.01 * tokens[:, None])
    shared, experts = upcycled.split_neurons(torch.cat([groups, busy], dim=1), n_shared=2, n_experts=2)
    assert shared.tolist() == [4, 5]
    assert sorted(expert.tolist() for expert in experts) == [[0, 2], [1, 3]]


def test_the_router_foresees_the_largest_expert() -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(200, 6, generator=generator)
    truth = torch.randn(3, 6, generator=generator)
    weight = upcycled.router_weight(hidden, (hidden @ truth.T).exp())
    scores = hidden @ weight.T
    assert (scores.argmax(1) == (hidden @ truth.T).argmax(1)).float().mean() > 0.98
    assert float(scores.std()) == pytest.approx(1.0)


@pytest.mark.long
@torch.inference_mode()
def test_the_embedded_mixture_and_the_shipped_draft() -> None:
    cpu = torch.device("cpu")
    pair = load_pair(upcycled.NAME, "data/models/smollm2-draft", cpu, torch.bfloat16)
    assert trunk_of(find_source(upcycled.NAME, "models.verifier")).name == embedded.NAME
    assert pair.verifier.name == upcycled.TITLE
    assert len(expert_layers(pair.verifier.module, "mixture")) == 30
    ids = torch.tensor([pair.tokenizer("The capital of France is")["input_ids"]])
    with watched_routers(pair.verifier.module, "mixture") as watch:
        logits = pair.verifier.module(input_ids=ids, use_cache=False).logits
        assert watch.take(1).experts.shape == (30, ids.shape[1], 2)
    assert torch.isfinite(logits).all()
