"""What decides the FLOPs of a model, read from its configuration."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

from specstudy.formulas import Dimensions

# The names that configurations use for one thing, the most specific first.
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
MLP_WIDTH = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
EXPERT_WIDTH = ("moe_intermediate_size", "expert_ffn_hidden_size")
ACTIVE_EXPERTS = ("num_experts_per_tok", "moe_topk", "moe_k")
SHARED_WIDTH = ("shared_expert_intermediate_size",)


def dimensions_of(module: PreTrainedModel) -> Dimensions:
    """Dimensions of a decoder whose layers are alike, under the names that configurations use.

    A gated MLP has three matrices, told by a weight called gate; an ungated one (GPT-2: c_fc and c_proj) has two.
    Layers that differ (some dense, some of experts) are all taken for the kind that the configuration describes.
    """
    config = module.config.get_text_config(decoder=True)
    hidden, heads = int(config.hidden_size), int(config.num_attention_heads)
    experts = _first(config, EXPERTS) or 0
    width = (_first(config, EXPERT_WIDTH) if experts else None) or _first(config, MLP_WIDTH) or 4 * hidden
    return Dimensions(
        n_layers=int(config.num_hidden_layers),
        hidden_size=hidden,
        n_heads=heads,
        n_kv_heads=1 if getattr(config, "multi_query", False) else _first(config, KV_HEADS) or heads,
        head_dim=_first(config, ("head_dim",)) or hidden // heads,
        intermediate_size=width,
        output_rows=int(module.get_output_embeddings().weight.shape[0]),
        mlp_matrices=3 if any("gate" in name for name, _ in module.named_parameters()) else 2,
        n_experts=experts,
        n_active_experts=(_first(config, ACTIVE_EXPERTS) or 0) if experts else 0,
        shared_intermediate_size=(_first(config, SHARED_WIDTH) or 0) if experts else 0,
    )


def _first(config: Any, names: tuple[str, ...]) -> int | None:
    """The first of these settings that the configuration has and that is not None or 0."""
    return next((int(value) for name in names if (value := getattr(config, name, None))), None)
