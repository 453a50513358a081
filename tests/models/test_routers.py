"""Routing captured from tiny random models of every family against gates computed again from the router's input."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from tiny_mixtures import HIDDEN, N_CHOSEN, N_EXPERTS, families, random_mixture, sizes
from torch import Tensor, nn
from transformers import LlamaConfig, MixtralConfig, PhimoeConfig, Qwen2MoeConfig

from specstudy.errors import UserError
from specstudy.models.cache import CachedModel
from specstudy.models.routers import KINDS, expert_layers, other_bytes, router_kind, watched_routers

FAMILIES = families()


def softmax_then_top_k(logits: Tensor, normalised: bool) -> tuple[Tensor, Tensor, Tensor]:
    p = torch.exp(logits) / torch.exp(logits).sum(-1, keepdim=True)
    gates, chosen = torch.sort(p, descending=True)
    gates, chosen = gates[:, :N_CHOSEN], chosen[:, :N_CHOSEN]
    return chosen, gates / gates.sum(-1, keepdim=True) if normalised else gates, p


def top_k_then_softmax(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    scores, chosen = torch.sort(logits, descending=True)
    weights = torch.exp(scores[:, :N_CHOSEN])
    p = torch.exp(logits) / torch.exp(logits).sum(-1, keepdim=True)
    return chosen[:, :N_CHOSEN], weights / weights.sum(-1, keepdim=True), p


def only_groups(scores: Tensor, best_of_group: Callable[[Tensor], Tensor]) -> Tensor:
    """Scores of all but the two best of the four groups at -1, token by token."""
    result = torch.full_like(scores, -1.0)
    for token, row in enumerate(scores):
        groups = row.reshape(4, 2)
        for group in torch.sort(best_of_group(groups), descending=True).indices[:2]:
            result[token, 2 * group : 2 * group + 2] = groups[group]
    return result


def by_hand(family: str, router: Any, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Chosen experts, gates, probabilities, as the papers of the families have them."""
    logits = hidden.float() @ router.weight.float().T
    name = family.partition(",")[0]
    if name in ("mixtral", "qwen3_moe", "qwen2_moe", "olmoe"):
        return softmax_then_top_k(logits, normalised=name in ("mixtral", "qwen3_moe") or "," in family)
    if name == "granitemoe":
        return top_k_then_softmax(logits)
    if name == "gpt_oss":
        return top_k_then_softmax(logits + router.bias)
    if name == "deepseek_v2":
        p = torch.exp(logits) / torch.exp(logits).sum(-1, keepdim=True)
        allowed = only_groups(p, lambda groups: groups.max(-1).values) if "," in family else p
        gates, chosen = torch.sort(allowed, descending=True)
        return chosen[:, :N_CHOSEN], 1.7 * gates[:, :N_CHOSEN], p
    sigmoid = 1 / (1 + torch.exp(-logits))
    biased = only_groups(sigmoid + router.e_score_correction_bias, lambda groups: groups.sum(-1))
    chosen = torch.sort(biased, descending=True).indices[:, :N_CHOSEN]
    gates = sigmoid.gather(1, chosen)
    order = torch.sort(gates, descending=True).indices
    gates = 1.7 * gates / gates.sum(-1, keepdim=True)
    return chosen.gather(1, order), gates.gather(1, order), sigmoid / sigmoid.sum(-1, keepdim=True)


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_routing_is_what_the_router_computes(family: str) -> None:
    model = random_mixture(FAMILIES[family])
    layers = expert_layers(model.module, "tiny")
    dense_first = family.startswith("deepseek") or "dense" in family
    assert [layer.index for layer in layers] == ([1, 2] if dense_first else [0, 1, 2])
    inputs: list[list[Tensor]] = [[] for _ in layers]

    def keep(place: int) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda module, arguments: inputs[place].append(arguments[0].reshape(-1, HIDDEN).clone())

    seen = [layer.router.register_forward_pre_hook(keep(place)) for place, layer in enumerate(layers)]
    ids = torch.arange(11) * 5 % tiny.VOCABULARY
    with watched_routers(model.module, "tiny") as watch:
        cached = CachedModel(model)
        cached.prefill(ids[:4])
        watched = [cached.forward(ids[4:5], keep=1), cached.forward(ids[5:], keep=1)]
        routing = watch.take(2)
    for hook in seen:
        hook.remove()
    assert routing.experts.shape == routing.gates.shape == (len(layers), 7, N_CHOSEN)
    for place, layer in enumerate(layers):
        chosen, gates, p = by_hand(family, layer.router, torch.cat(inputs[place])[4:])
        np.testing.assert_array_equal(routing.experts[place], chosen.numpy())
        np.testing.assert_allclose(routing.gates[place], gates.numpy(), atol=1e-5)
        np.testing.assert_allclose(routing.probabilities[place], p.numpy(), atol=1e-5)
    # Watching changes nothing, and nothing of it stays.
    again = CachedModel(model)
    again.prefill(ids[:4])
    assert torch.equal(watched[0], again.forward(ids[4:5], keep=1))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.module.modules())


@torch.inference_mode()
def test_a_layer_by_hand() -> None:
    """Scores (2, 0.5, 1.5, -1): experts 0 and 2, gates .622 and .378, whose outputs (1, .2) and (.4, .8) are mixed."""
    small = {"hidden_size": 4, "intermediate_size": 4, "num_attention_heads": 1, "num_key_value_heads": 1}
    config = MixtralConfig(**sizes(**small, num_experts_per_tok=2, num_hidden_layers=1), num_local_experts=4)
    module = tiny.language_model(config).module
    layer = module.model.layers[0].mlp
    hidden = torch.eye(4)[None, :1]
    for weight in layer.parameters():
        weight.zero_()
    layer.gate.weight[:, 0] = torch.tensor([2.0, 0.5, 1.5, -1.0])
    # One neuron of each expert answers, with silu(1) * 1, and the second matrix makes of that the expert's output.
    layer.experts.gate_up_proj[:, [0, 4], 0] = 1.0
    outputs = torch.tensor([[1.0, 0.2], [7.0, 7.0], [0.4, 0.8], [7.0, 7.0]])
    layer.experts.down_proj[:, :2, 0] = outputs / nn.functional.silu(torch.tensor(1.0))
    with watched_routers(module, "tiny") as watch:
        watch._begin()
        mixed = layer(hidden)
        routing = watch.take(1)
    assert routing.experts.tolist() == [[[0, 2]]]
    np.testing.assert_allclose(routing.gates, [[[0.622, 0.378]]], atol=5e-4)
    np.testing.assert_allclose(mixed[0, 0, :2], [0.773, 0.427], atol=5e-4)


def test_every_known_family_is_tested() -> None:
    assert {config.model_type for config in FAMILIES.values()} == set(KINDS)


def test_bytes_of_experts_and_of_the_rest() -> None:
    model = random_mixture(FAMILIES["qwen2_moe"])
    layers = expert_layers(model.module, "tiny")
    assert [layer.expert_bytes for layer in layers] == [3 * 32 * 24 * 4] * 3
    everything = 4 * sum(p.numel() for p in model.module.parameters())
    embedding, experts = 4 * tiny.VOCABULARY * 32, 3 * 8 * 3 * 32 * 24 * 4
    assert other_bytes(model.module, layers) == everything - embedding - experts
    tied = random_mixture(MixtralConfig(**sizes(), num_local_experts=N_EXPERTS, tie_word_embeddings=True))
    everything = 4 * sum(p.numel() for p in tied.module.parameters())
    assert other_bytes(tied.module, expert_layers(tied.module, "tiny")) == everything - experts


def test_hooks_go_when_the_block_fails() -> None:
    model = random_mixture(FAMILIES["mixtral"])
    with pytest.raises(RuntimeError), watched_routers(model.module, "tiny"):
        raise RuntimeError
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.module.modules())


def test_layers_borrowed_by_a_draft_are_not_taken_for_a_pass() -> None:
    model = random_mixture(FAMILIES["mixtral"])
    with watched_routers(model.module, "tiny") as watch:
        model.module(input_ids=torch.tensor([[1, 2]]), use_cache=False)
        model.module.model(input_ids=torch.tensor([[3, 4, 5]]), use_cache=False)
        assert watch.take(1).experts.shape == (3, 2, N_CHOSEN)


def test_models_that_cannot_be_measured_are_refused() -> None:
    with pytest.raises(UserError, match="has no experts to route to"):
        router_kind(LlamaConfig(), "some/llama")
    with pytest.raises(UserError, match="routers of phimoe are not known"):
        router_kind(PhimoeConfig(), "some/phi")
    dense = tiny.language_model(Qwen2MoeConfig(**sizes(), num_experts=N_EXPERTS, mlp_only_layers=[0, 1, 2]))
    with pytest.raises(UserError, match="none of its layers has experts"):
        expert_layers(dense.module, "tiny")
