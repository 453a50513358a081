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
SHARED_EXPERTS = ("n_shared_experts",)


def dimensions_of(module: PreTrainedModel) -> Dimensions:
    """Dimensions of a decoder, under the names that configurations use.

    A gated MLP has three matrices, told by a weight called gate; an ungated one (GPT-2: c_fc and c_proj) has two.
    Layers of a mixture that have no experts are told by the modules, as families say in different ways which they are.
    """
    config = module.config.get_text_config(decoder=True)
    hidden, heads = int(config.hidden_size), int(config.num_attention_heads)
    experts = _first(config, EXPERTS) or 0
    dense_width = _first(config, MLP_WIDTH) or 4 * hidden
    width = (_first(config, EXPERT_WIDTH) if experts else None) or dense_width
    n_expert_layers = sum(name.endswith(".experts") for name, _ in module.named_modules())
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
        shared_intermediate_size=_shared_width(config, width) if experts else 0,
        n_dense_layers=int(config.num_hidden_layers) - n_expert_layers if experts else 0,
        dense_intermediate_size=dense_width if experts else 0,
        latent_attention=_latent_attention(config, hidden, heads),
    )


def _shared_width(config: Any, expert_width: int) -> int:
    """One shared expert of a width of its own, or several of the routed experts' width."""
    return _first(config, SHARED_WIDTH) or (_first(config, SHARED_EXPERTS) or 0) * expert_width


def _latent_attention(config: Any, hidden: int, heads: int) -> int:
    """Matrix elements of a layer's multi-head latent attention (DeepSeek-V2, arXiv 2405.04434); 0 for any other."""
    latent = _first(config, ("kv_lora_rank",))
    if not latent:
        return 0
    rotary, query, value = config.qk_rope_head_dim, config.qk_nope_head_dim, config.v_head_dim
    query_rank, query_rows = _first(config, ("q_lora_rank",)), heads * (query + rotary)
    queries = query_rank * (hidden + query_rows) if query_rank else hidden * query_rows
    keys_and_values = hidden * (latent + rotary) + latent * heads * (query + value)
    return int(queries + keys_and_values + heads * value * hidden)


def _first(config: Any, names: tuple[str, ...]) -> int | None:
    """The first of these settings that the configuration has and that is not None or 0."""
    return next((int(value) for name in names if (value := getattr(config, name, None))), None)
