"""A small mixture of experts made from the embedded verifier, since no public one fits on a small machine.

Each MLP is split, without training, by what its neurons do on calibration text (`split_neurons`): the half that
contributes most stays on for every token (a shared expert), the other half becomes 8 experts of 96 neurons, 2 a token.
A router foresees from the layer's input how much each expert would say (`router_weight`). Architecture: Qwen2-MoE.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
)

from specstudy.config import PROJECT_ROOT
from specstudy.models import embedded

NAME = f"{embedded.PREFIX}smollm2-moe"
TITLE = "SmolLM2-135M upcycled to 8 experts"
NOTE = f"{embedded.NOTE}, MLPs split into experts without training"
DIRECTORY = PROJECT_ROOT / ".cache" / "models" / "smollm2-moe"
CALIBRATION = PROJECT_ROOT / "data" / "prompts" / "contexts.yaml"
CALIBRATION_SHAPE = (8, 512)
N_EXPERTS, N_CHOSEN, SHARED_SHARE = 8, 2, 0.5
RIDGE = 0.01
_KEPT = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_parameters",
    "tie_word_embeddings",
    "hidden_act",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
)


def ensure_mixture() -> Path:
    """The local copy (bfloat16), made from the embedded verifier on first use."""
    return embedded.made_once(DIRECTORY, lambda directory: _make(embedded.ensure_embedded_verifier(), directory))


def _make(source: Path, directory: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(source)
    with contextlib.redirect_stderr(io.StringIO()):  # of the bars that transformers draws, one cannot be turned off
        dense = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
        mixture = upcycle(dense, calibration_ids(tokenizer), N_EXPERTS, N_CHOSEN, SHARED_SHARE)
        mixture.to(torch.bfloat16).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def calibration_ids(tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """The first tokens of the project's contexts, int64 [sequences, tokens]."""
    text = "\n".join(_texts(yaml.safe_load(CALIBRATION.read_text(encoding="utf-8"))))
    n_sequences, n_tokens = CALIBRATION_SHAPE
    ids = tokenizer(text, add_special_tokens=False)["input_ids"][: n_sequences * n_tokens]
    return torch.tensor(ids).view(n_sequences, n_tokens)


def _texts(node: Any) -> Iterator[str]:
    """Every string of nested mappings and lists, in order."""
    if isinstance(node, str):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else []:
        yield from _texts(child)


@torch.no_grad()  # weights made in inference mode could not be saved
def upcycle(dense: PreTrainedModel, ids: Tensor, n_experts: int, n_chosen: int, shared_share: float) -> PreTrainedModel:
    """A mixture of experts from a dense Llama (float32), decided by its activity on ids [B, S]; attention is the same.

    The shared part and the experts hold the MLP's own neurons: were all experts on, with equal gates, the layer would
    compute what the dense one does.
    """
    config = dense.config
    n_shared = round(config.intermediate_size * shared_share)
    width = (config.intermediate_size - n_shared) // n_experts
    kept = {name: getattr(config, name) for name in _KEPT}
    mixture = Qwen2MoeForCausalLM(
        Qwen2MoeConfig(
            **kept,
            intermediate_size=config.intermediate_size,
            moe_intermediate_size=width,
            shared_expert_intermediate_size=n_shared,
            num_experts=n_experts,
            num_experts_per_tok=n_chosen,
            norm_topk_prob=True,
            qkv_bias=False,
        )
    )
    absent, left = mixture.load_state_dict(dense.state_dict(), strict=False)
    assert all(".mlp." in name for name in [*absent, *left]), "only MLPs differ"
    blocks = [layer.mlp for layer in mixture.model.layers]

    def split(place: int) -> Any:
        # Within the hook, so that no more than one layer's activity is in memory.
        return lambda module, arguments, output: _split_mlp(module, arguments[0].flatten(0, 1), blocks[place])

    hooks = [layer.mlp.register_forward_hook(split(place)) for place, layer in enumerate(dense.model.layers)]
    dense.model(input_ids=ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    mixture.generation_config.eos_token_id = dense.generation_config.eos_token_id
    return mixture.eval()


def _split_mlp(mlp: Any, hidden: Tensor, block: Any) -> None:
    """Fill a block's experts and router from a dense MLP and what it is fed, hidden [T, D]."""
    activity = mlp.act_fn(mlp.gate_proj(hidden)) * mlp.up_proj(hidden)
    down = mlp.down_proj.weight
    n_experts, n_shared = block.gate.num_experts, block.shared_expert.gate_proj.weight.shape[0]
    shared, experts = split_neurons(activity.abs() * down.norm(dim=0), n_shared, n_experts)
    for name in ("gate_proj", "up_proj"):
        getattr(block.shared_expert, name).weight.copy_(getattr(mlp, name).weight[shared])
    # The gate of the shared part is a half (sigmoid of 0), and gates of the chosen sum to 1: both are made up for here.
    block.shared_expert.down_proj.weight.copy_(2 * down[:, shared])
    nn.init.zeros_(block.shared_expert_gate.weight)
    sizes = []
    for index, neurons in enumerate(experts):
        gate_up = torch.cat([mlp.gate_proj.weight[neurons], mlp.up_proj.weight[neurons]])
        block.experts.gate_up_proj[index].copy_(gate_up)
        block.experts.down_proj[index].copy_(block.gate.top_k * down[:, neurons])
        sizes.append((activity[:, neurons] @ down[:, neurons].T).norm(dim=1))
    block.gate.weight.copy_(router_weight(hidden, torch.stack(sizes, dim=1)))


def split_neurons(contribution: Tensor, n_shared: int, n_experts: int) -> tuple[Tensor, list[Tensor]]:
    """Neurons of the shared part [n_shared], and of each expert, from what each neuron adds to tokens [T, neurons].

    Shared are those with the largest mean. The others are ordered along the first principal component of their
    activity over tokens, so that neurons that are active together stand together, and cut into equal slices.
    """
    order = contribution.mean(0).argsort(descending=True, stable=True)
    shared, others = order[:n_shared].sort().values, order[n_shared:]
    shapes = contribution[:, others] / contribution[:, others].norm(dim=0).clamp_min(1e-12)
    component = torch.linalg.eigh(shapes.T @ shapes - shapes.mean(0).outer(shapes.mean(0)) * len(shapes)).eigenvectors
    ordered = others[(component[:, -1] * component[:, -1].sum().sign()).argsort(stable=True)]
    return shared, [slice_.sort().values for slice_ in ordered.chunk(n_experts)]


def router_weight(hidden: Tensor, sizes: Tensor) -> Tensor:
    """Router [N, D]: ridge regression of how large each expert's output is, sizes [T, N], on the input, hidden [T, D].

    Sizes are taken as logarithms less their mean over experts; scores have a standard deviation of 1 on these tokens.
    """
    targets = sizes.clamp_min(1e-6).log()
    targets = targets - targets.mean(1, keepdim=True)
    squares = hidden.T @ hidden
    squares += RIDGE * squares.diagonal().mean() * torch.eye(len(squares))
    weight: Tensor = torch.linalg.solve(squares, hidden.T @ targets).T
    return weight / (hidden @ weight.T).std().clamp_min(1e-6)
