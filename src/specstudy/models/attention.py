"""Attention reduced inside the layer: what every key receives, without ever keeping the maps of all layers.

transformers lets a model call any registered attention function. The one registered here returns the ordinary SDPA
output, and adds up query chunk by query chunk, in float32, how much each key is paid. Where SDPA does not honour what
the model asks for (soft-capped scores, a sink parameter), the output comes from the same chunks. The few architectures
that call no attention function are measured by hooks (`attention_maps`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask

from specstudy.errors import UserError
from specstudy.models import grouped_attention, lowered_scores, without_position
from specstudy.models.attention_functions import attending_by, calls_attention_functions
from specstudy.models.attention_maps import hooked_maps
from specstudy.models.attention_steps import GeneratingQueries
from specstudy.models.attention_sums import SumsOfLayers

NAME = "specstudy_reduced"
CHUNK_ELEMENTS = 1_000_000
"""Scores held at once, 4 MB: what stays in a processor's cache is added up several times faster than what does not."""
FEWEST_QUERIES = 16
# Arguments that do not change the weights of a causal decoder without dropout.
HARMLESS = {
    "position_ids",
    "use_cache",
    "cache_position",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "sliding_window",  # the mask says it
    "is_causal",  # looked at on its own
}


def chunk_queries(n_heads: int, n_keys: int) -> int:
    """How many queries are worked on at once."""
    return max(FEWEST_QUERIES, CHUNK_ELEMENTS // (n_heads * n_keys))


class _AttentionFunction(SumsOfLayers):
    """An attention function for transformers that adds up what it sees."""

    def attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        dropout: float = 0.0,
        softcap: float | None = None,
        s_aux: Tensor | None = None,
        **others: object,
    ) -> tuple[Tensor, None]:
        """query [1, H, S, D], key [1, KV, T, D], value [1, KV, T, E] to output [1, S, H, E]; the first T - S keys are
        of tokens before the queries'.

        `softcap` bounds the scores (Gemma 2); `s_aux` [H] is the sink parameter, one more score that every query's
        softmax pays and no key receives (gpt-oss).
        """
        _refuse_unknown(module, dropout, others)
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        if softcap is None and s_aux is None:
            self._reduce(query[0], key[0], None, attention_mask, scale, None, None)
            return grouped_attention.attend(module, query, key, value, attention_mask, dropout, scaling, **others)
        own = self._reduce(query[0], key[0], value[0], attention_mask, scale, softcap, s_aux)
        assert own is not None
        return own.to(query.dtype).transpose(0, 1)[None].contiguous(), None

    def _reduce(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None,
        attention_mask: Tensor | None,
        scale: float,
        softcap: float | None,
        sink: Tensor | None,
    ) -> Tensor | None:
        """Add up one layer; with `value` also its output [H, S, E], float32."""
        n_heads, n_queries, _ = query.shape
        n_kv_heads, n_keys, head_dim = key.shape
        past = n_keys - n_queries
        sums = self.new_layer(n_heads, n_keys, query.device)
        keys, values = key.float().transpose(1, 2), None if value is None else value.float()
        output = None if values is None else values.new_empty(n_heads, n_queries, values.shape[-1])
        step = chunk_queries(n_heads, n_keys)
        for start in range(0 if values is not None else max(0, self.first_needed - past), n_queries, step):
            stop = min(start + step, n_queries)
            end = past + stop
            visible, bias = _visible(attention_mask, start, stop, past)
            first = 0 if visible is None else int(visible.any(0).int().argmax())
            rows = (query[:, start:stop].float() * scale).reshape(n_kv_heads, -1, head_dim)
            scores = (rows @ keys[:, :, first:end]).view(n_heads, stop - start, end - first)
            if softcap is not None:
                scores = scores.div_(softcap).tanh_().mul_(softcap)
            if bias is not None:
                scores += bias[..., first:]
            if visible is None:
                scores[..., past + start - first :].masked_fill_(_later(stop - start, scores.device), -torch.inf)
            else:
                scores.masked_fill_(~visible[:, first:], -torch.inf)
            weights = scores.softmax(-1)
            if sink is not None:
                paid_to_keys = torch.sigmoid(scores.logsumexp(-1) - sink.float()[:, None])
                weights *= paid_to_keys[..., None]
                sums.paid_to_no_key += (1.0 - paid_to_keys[:, max(0, self.first_query - past - start) :]).sum(-1)
            sums.add(weights, past + start, first, visible)
            if output is not None and values is not None:
                grouped = weights.view(n_kv_heads, -1, end - first) @ values[:, first:end]
                output[:, start:stop] = grouped.view(n_heads, stop - start, -1)
        return output


def _refuse_unknown(module: nn.Module, dropout: float, others: dict[str, object]) -> None:
    unknown = {name for name, value in others.items() if value is not None} - HARMLESS
    if dropout:
        unknown.add("dropout")
    if others.get("is_causal") is False or getattr(module, "is_causal", True) is False:
        unknown.add("is_causal=False")
    if unknown:
        raise UserError(
            f"the attention of {type(module).__name__} cannot be measured with the argument "
            f"{', '.join(sorted(unknown))}; choose another verifier"
        )


def _later(n: int, device: torch.device) -> Tensor:
    """[n, n]: True where the key comes after the query."""
    return torch.ones(n, n, dtype=torch.bool, device=device).triu_(1)


def _visible(attention_mask: Tensor | None, start: int, stop: int, past: int) -> tuple[Tensor | None, Tensor | None]:
    """What a model's mask says for queries start to stop, which `past` keys come before: (visible [q, past + stop], or
    None for all keys up to the query's own; what it adds to the scores [1 or H, q, past + stop], or None).

    Raises FloatingPointError if a query may see a later key, UserError if heads see different keys.
    """
    if attention_mask is None:
        return None, None
    given = attention_mask[0, :, start:stop]
    seen = given if given.dtype == torch.bool else given > torch.finfo(given.dtype).min / 2
    visible = seen[0]
    if len(seen) > 1 and bool((seen != visible).any()):
        raise UserError("attention whose heads see different keys cannot be measured; choose another verifier")
    if bool(visible.triu(past + start + 1).any()):
        raise FloatingPointError("the attention mask lets a query see a later key")
    bias = None if given.dtype == torch.bool else given[..., : past + stop].float()
    return visible[:, : past + stop], bias


@contextmanager
def reduced_attention(
    module: PreTrainedModel,
    n_layers: int,
    window: int,
    first_query: int = 0,
    generating: GeneratingQueries | None = None,
) -> Iterator[SumsOfLayers]:
    """Within this block, one forward pass of `module` adds up its attention; afterwards it runs as before."""
    if not calls_attention_functions(module):
        with hooked_maps(module, n_layers, window, first_query, generating) as maps:
            yield maps
        return
    function = _AttentionFunction(n_layers, window, first_query, generating)
    before = module.config._attn_implementation
    # What is hidden or scored lower stays so while its model is measured.
    altered = before in (*without_position.NAMES, lowered_scores.NAME)
    mask = ALL_MASK_ATTENTION_FUNCTIONS[before] if altered else sdpa_mask
    with attending_by(module, NAME, function.attend, mask):
        yield function
