"""Prefill: how attention is spread over a prompt, which positions are sinks, and how healthy that looks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from specstudy import formulas
from specstudy.errors import UserError
from specstudy.formulas import ZScores
from specstudy.measure.finite import not_finite_error
from specstudy.models import device as devices
from specstudy.models.attention import reduced_attention
from specstudy.models.attention_functions import calls_attention_functions
from specstudy.models.attention_steps import GeneratingQueries
from specstudy.models.attention_sums import AttentionSums
from specstudy.models.cache import CachedModel, sliding_windows
from specstudy.models.load import LanguageModel
from specstudy.models.tokens import token_text
from specstudy.prompts.prompt import RenderedPrompt
from specstudy.records import PrefillHead, PrefillPrompt, PrefillToken

Floats = NDArray[np.float64]
BLOCK_TOKENS = 256
PROBE_TOKENS = 8


@dataclass(frozen=True)
class Received:
    """Attention that each of S prompt positions gets, mean over layers and heads; window is None inside the window."""

    per_visible_query: Floats
    share: Floats
    window: Floats | None
    n_before_window: int
    per_head: Floats


def received(sums: AttentionSums) -> Received:
    """From sums over queries to the measures of a prompt."""
    columns = sums.column_sums.double().numpy()
    n_tokens = columns.shape[-1]
    per_head = columns / sums.visible_queries.numpy()[:, None, :]
    n_before = n_tokens - sums.window
    window = None
    if n_before > 0:
        window = sums.window_sums.double().numpy().mean((0, 1))[:n_before] / sums.window
    return Received(per_head.mean((0, 1)), columns.mean((0, 1)) / n_tokens, window, max(0, n_before), per_head)


@torch.inference_mode()
def prefill_sums(
    model: LanguageModel,
    token_ids: list[int],
    window: int,
    first_query: int = 0,
    generating: GeneratingQueries | None = None,
) -> AttentionSums:
    """One pass over token_ids; attention of the queries from `first_query` on, and of the generating ones by step."""
    ids = torch.tensor([token_ids], device=model.device)
    with reduced_attention(model.module, model.dimensions.n_layers, window, first_query, generating) as sums:
        model.module(input_ids=ids, use_cache=False, logits_to_keep=1)
    return sums.finish()


@torch.inference_mode()
def answer_sums(
    cached: CachedModel, prompt_ids: list[int], answer_ids: list[int], generating: GeneratingQueries | None = None
) -> AttentionSums:
    """Attention of the answer's queries, and of the generating ones by step; `cached` holds all of the prompt but its
    last token, and more.

    The prompt is not passed again where every layer keeps all its keys: its last token and the answer alone are.
    """
    model, n_prompt = cached.model, len(prompt_ids)
    if not calls_attention_functions(model.module) or any(sliding_windows(model.module.config)):
        return prefill_sums(model, [*prompt_ids, *answer_ids], 1, n_prompt, generating)
    cached.rollback(n_prompt - 1)
    with reduced_attention(model.module, model.dimensions.n_layers, 1, n_prompt, generating) as sums:
        cached.forward(torch.tensor([prompt_ids[-1], *answer_ids], device=model.device), keep=1)
    return sums.finish()


def describe_attention(model: LanguageModel) -> dict[str, object]:
    """How the attention of this model is measured, seen on a few tokens. Raises UserError if it cannot be."""
    try:
        sums = prefill_sums(model, list(range(min(PROBE_TOKENS, model.vocabulary))), window=1)
    except FloatingPointError as error:
        raise UserError(f"the attention of {model.name} cannot be measured: {error}") from error
    return {
        "measured_in": "the attention function" if calls_attention_functions(model.module) else "eager maps of a layer",
        "has_sink_parameter": bool((sums.paid_to_no_key > 0).any()),
    }


@torch.inference_mode()
def negative_log2_likelihoods(model: LanguageModel, token_ids: list[int]) -> Floats:
    """-log2 p of every token but the first, given those before it [S - 1]; in blocks, so that memory stays flat."""
    ids = torch.tensor(token_ids, device=model.device)
    cached = CachedModel(model)
    found = []
    for start in range(0, len(token_ids) - 1, BLOCK_TOKENS):
        block = ids[start : min(start + BLOCK_TOKENS, len(token_ids) - 1)]
        logits = cached.forward(block, keep=len(block))
        if not bool(torch.isfinite(logits.amax(-1)).all()):
            raise not_finite_error(model, ids[: start + len(block)])
        targets = ids[start + 1 : start + 1 + len(block)]
        chosen = logits.gather(-1, targets[:, None])[:, 0]
        found.append((logits.logsumexp(-1) - chosen).cpu())
    return torch.cat(found).double().numpy() / np.log(2.0) if found else np.zeros(0)


def measure_prefill(
    model: LanguageModel, tokenizer: object, rendered: RenderedPrompt, window: int
) -> dict[str, list[object]]:
    """All prefill records of one prompt: `prefill_tokens`, `prefill_heads`, `prefill_prompts`.

    What a threshold makes of the z-scores is None here; `tables.sinks` adds it.
    """
    # First, since it tells of logits that are not finite in plain words.
    likelihoods = negative_log2_likelihoods(model, rendered.token_ids)
    before_s = devices.now_s(model.device)
    sums = prefill_sums(model, rendered.token_ids, window)
    prefill_s = devices.now_s(model.device) - before_s
    attention = received(sums)
    content = np.array([not p.is_structural for p in rendered.positions])
    z_all = formulas.robust_z_scores(attention.per_visible_query, content)
    z_window = _window_z(attention, content)
    keys = rendered.keys
    return {
        "prefill_tokens": _tokens(keys, tokenizer, rendered, attention, z_all, z_window),
        "prefill_heads": _heads(keys, sums, attention, content),
        "prefill_prompts": [_prompt(keys, rendered, sums, attention, content, z_all, z_window, likelihoods, prefill_s)],
    }


def _window_z(attention: Received, content: NDArray[np.bool_]) -> ZScores:
    if attention.window is None:
        return ZScores(None, "the prompt is not longer than the window")
    return formulas.robust_z_scores(attention.window, content[: attention.n_before_window])


def _tokens(
    keys: dict[str, str],
    tokenizer: object,
    rendered: RenderedPrompt,
    attention: Received,
    z_all: ZScores,
    z_window: ZScores,
) -> list[object]:
    records: list[object] = []
    for index, position in enumerate(rendered.positions):
        in_window = index >= attention.n_before_window
        z = None if z_all.values is None else float(z_all.values[index])
        zw = None if in_window or z_window.values is None else float(z_window.values[index])
        reasons = [z_all.null_reason, "inside the observation window" if in_window else z_window.null_reason]
        records.append(
            PrefillToken(
                **keys,
                position=index,
                token_id=position.token_id,
                token=token_text(tokenizer, position.token_id),
                role=position.role,
                structural_role=position.structural_role,
                is_structural=position.is_structural,
                attention_received=float(attention.per_visible_query[index]),
                attention_window=None if in_window or attention.window is None else float(attention.window[index]),
                attention_share=float(attention.share[index]),
                z_score=z,
                z_window=zw,
                is_sink=None,
                is_sink_window=None,
                null_reason="; ".join(dict.fromkeys(r for r in reasons if r)) or None,
            )
        )
    return records


def _heads(keys: dict[str, str], sums: AttentionSums, attention: Received, content: NDArray[np.bool_]) -> list[object]:
    first = sums.column_sums[:, :, 0].double().numpy() / attention.per_head.shape[-1]
    positions = np.flatnonzero(content)
    best = positions[attention.per_head[..., positions].argmax(-1)] if len(positions) else None
    return [
        PrefillHead(
            **keys,
            layer=layer,
            head=head,
            first_token_attention=float(first[layer, head]),
            max_content_attention=None if best is None else float(attention.per_head[layer, head, best[layer, head]]),
            max_content_position=None if best is None else int(best[layer, head]),
        )
        for layer, head in np.ndindex(first.shape)
    ]


def _prompt(
    keys: dict[str, str],
    rendered: RenderedPrompt,
    sums: AttentionSums,
    attention: Received,
    content: NDArray[np.bool_],
    z_all: ZScores,
    z_window: ZScores,
    likelihoods: Floats,
    prefill_s: float,
) -> PrefillPrompt:
    n_tokens = len(content)
    seen = content[: attention.n_before_window]
    soft = None if attention.window is None else formulas.context_health_soft(attention.window[seen])
    content_likelihoods = likelihoods[content[1:]]
    reasons = {
        "context_health": z_all.null_reason,
        "context_health_window": z_window.null_reason,
        "context_health_soft": None if soft is not None else "under 8 content positions before the window",
        "boundary_attention_entropy": None if n_tokens > 1 else "one token",
        "sink_rate": None if n_tokens >= formulas.MIN_TOKENS_FOR_SINK_RATE else "under 16 tokens",
        "prompt_nll_bits": None if len(content_likelihoods) else "no content after position 0",
    }
    return PrefillPrompt(
        **keys,
        n_tokens=n_tokens,
        n_content=int(content.sum()),
        n_sinks_structural=None,
        n_sinks_content=None,
        context_health=None,
        context_health_window=None,
        context_health_soft=soft,
        structural_share=float(attention.share[~content].sum()),
        boundary_attention_entropy=float(sums.boundary_entropy_bits.double().mean()) / float(np.log2(n_tokens))
        if n_tokens > 1
        else None,
        sink_rate=formulas.sink_rate(sums.column_sums[:, :, 0].numpy() / n_tokens, n_tokens),
        prompt_nll_bits=formulas.mean_or_none(content_likelihoods),
        prefill_s=prefill_s,
        rendered_prompt=rendered.text,
        rendering_notes=list(rendered.notes) or None,
        null_reason="; ".join(f"{name}: {reason}" for name, reason in reasons.items() if reason) or None,
    )
