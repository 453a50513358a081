"""Routers of mixture-of-experts models: which they are, what they decided in each pass, what their experts weigh.

A router of transformers returns its scores before any probability, the gate weights and the chosen experts. These are
taken as they are, so that softmax before or after the choice, correction biases and limits to groups are the model's
own. Experts that every token uses (shared ones) have no router and count as the rest of the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from specstudy.errors import UserError

# The names that configurations use for how many experts there are.
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


@dataclass(frozen=True)
class RouterKind:
    """A family's router: the name of its class, and what makes its scores probabilities (softmax or sigmoid)."""

    class_name: str
    scores: str


# By `model_type`. Only what tests/models/test_routers.py computes again by hand stands here.
KINDS: dict[str, RouterKind] = {
    "mixtral": RouterKind("MixtralTopKRouter", "softmax"),
    "qwen2_moe": RouterKind("Qwen2MoeTopKRouter", "softmax"),
    "qwen3_moe": RouterKind("Qwen3MoeTopKRouter", "softmax"),
    "olmoe": RouterKind("OlmoeTopKRouter", "softmax"),
    "granitemoe": RouterKind("GraniteMoeTopKRouter", "softmax"),
    "deepseek_v2": RouterKind("DeepseekV2TopkRouter", "softmax"),
    "deepseek_v3": RouterKind("DeepseekV3TopkRouter", "sigmoid"),
    "gpt_oss": RouterKind("GptOssTopKRouter", "softmax"),
}


@dataclass(frozen=True)
class ExpertLayer:
    """A layer with experts. `expert_bytes` is what one expert weighs in memory."""

    index: int
    router: nn.Module
    n_experts: int
    expert_bytes: float


@dataclass(frozen=True)
class Routing:
    """What the routers of L layers decided for T tokens.

    `experts` int64 [L, T, k], by falling gate; `gates` float32 [L, T, k]; `probabilities` float32 [L, T, N] over all
    experts of the layer, before any choice: softmax of the scores, or for sigmoid gates their share of the sum.
    """

    experts: NDArray[np.int64]
    gates: NDArray[np.float32]
    probabilities: NDArray[np.float32]


@dataclass
class RouterWatch:
    """The passes of a watched model since the last `take`."""

    scores: str
    _passes: list[list[tuple[Tensor, Tensor, Tensor]]] = field(default_factory=list)
    _inside: bool = False

    def take(self, n_passes: int) -> Routing:
        """The last `n_passes` passes over the model, their tokens in order; all passes are forgotten."""
        kept, self._passes = self._passes[len(self._passes) - n_passes :], []
        logits, gates, experts = (
            torch.stack([torch.cat([layer[part] for layer in layers]) for layers in zip(*kept, strict=True)])
            for part in range(3)
        )
        order = gates.argsort(dim=-1, descending=True, stable=True)
        return Routing(
            experts.gather(-1, order).cpu().numpy().astype(np.int64),
            gates.gather(-1, order).float().cpu().numpy(),
            router_probabilities(logits, self.scores).cpu().numpy(),
        )

    def _begin(self, *_: Any) -> None:
        self._inside = True
        self._passes.append([])

    def _end(self, *_: Any) -> None:
        self._inside = False

    def _record(self, module: nn.Module, inputs: Any, output: tuple[Tensor, Tensor, Tensor]) -> None:
        # Layers that a draft borrows from the verifier also run outside the verifier's passes. Nothing is computed
        # here: a pass waits for no statistic.
        if self._inside:
            self._passes[-1].append(output)


def router_probabilities(logits: Tensor, scores: str) -> Tensor:
    """Probabilities [..., N] float32 that a router's scores [..., N] stand for."""
    if scores == "softmax":
        return logits.float().softmax(-1)
    shares = logits.float().sigmoid()
    return shares / shares.sum(-1, keepdim=True)


def router_kind(config: PreTrainedConfig, name: str) -> RouterKind:
    """How the models of this configuration route. Raises UserError for one without experts, or of another family."""
    text = config.get_text_config(decoder=True)
    if text.model_type in KINDS:
        return KINDS[text.model_type]
    if any(getattr(text, key, None) for key in EXPERTS):
        known = ", ".join(KINDS)
        raise UserError(f"models.verifier={name}: routers of {text.model_type} are not known here; known are {known}")
    raise UserError(f"models.verifier={name} has no experts to route to; `models=smollm2-moe` has")


def expert_layers(module: PreTrainedModel, name: str) -> list[ExpertLayer]:
    """The layers with routed experts, in order. Raises UserError if there is none, or the family is not known."""
    kind = router_kind(module.config, name)
    found = []
    for path, router in module.named_modules():
        if type(router).__name__ == kind.class_name:
            experts = module.get_submodule(path.rpartition(".")[0]).experts
            n_experts = router.weight.shape[0]
            layer = next(int(part) for part in path.split(".") if part.isdigit())
            found.append(ExpertLayer(layer, router, n_experts, _bytes(experts.parameters()) / n_experts))
    if not found:
        raise UserError(f"models.verifier={name}: none of its layers has experts; choose a model whose layers do")
    return found


def other_bytes(module: PreTrainedModel, layers: list[ExpertLayer]) -> float:
    """Weights that every pass reads: all but routed experts, and the input embedding unless the head is tied to it."""
    looked_up, head = module.get_input_embeddings().weight, module.get_output_embeddings().weight
    everything = _bytes(module.parameters()) - (0 if looked_up is head else _bytes([looked_up]))
    return everything - sum(layer.n_experts * layer.expert_bytes for layer in layers)


def _bytes(parameters: Any) -> float:
    return float(sum(parameter.numel() * parameter.element_size() for parameter in parameters))


@contextmanager
def watched_routers(module: PreTrainedModel, name: str) -> Iterator[RouterWatch]:
    """Within this block the routers' decisions in passes of the whole model are kept; afterwards it runs as before."""
    watch = RouterWatch(router_kind(module.config, name).scores)
    hooks = [layer.router.register_forward_hook(watch._record) for layer in expert_layers(module, name)]
    hooks.append(module.register_forward_pre_hook(watch._begin))
    hooks.append(module.register_forward_hook(watch._end, always_call=True))
    try:
        yield watch
    finally:
        for hook in hooks:
            hook.remove()
