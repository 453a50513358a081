"""Attention while writing: what the query behind each generated token pays, as the measures that are recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from specstudy.measure.sinks import answer_sums
from specstudy.models.attention_steps import CONTENT, OWN, SINK, STRUCTURAL, AttentionSteps, GeneratingQueries
from specstudy.models.attention_sums import AttentionSums
from specstudy.models.cache import CachedModel
from specstudy.prompts.prompt import RenderedPrompt
from specstudy.records import ATTENTION_MEASURES, THIRDS, DecodeAttentionHead

Floats = NDArray[np.float64]


def attention_to_text(cached: CachedModel, rendered: RenderedPrompt, answer_ids: Sequence[int]) -> AttentionSums:
    """One pass of the verifier over the answer to a prompt; `cached` holds the prompt, and more.

    The sums are those of the answer's own queries, the steps those of the queries whose logits gave it.
    """
    is_content = torch.tensor([not p.is_structural for p in rendered.positions], device=cached.model.device)
    return answer_sums(cached, rendered.token_ids, [*answer_ids], GeneratingQueries(is_content))


def head_measures(steps: AttentionSteps, n_prompt: int, n_content: int) -> dict[str, Floats]:
    """Each measure of `ATTENTION_MEASURES` by layer, head and step [L, H, T]; NaN where it is not defined.

    The query of step t stands at position n_prompt - 1 + t; n_content counts content positions but position 0. The
    lookback ratio is that of Chuang et al. 2024 (arXiv 2407.07071), content being the context that is looked back at.
    """
    masses = steps.masses.double().numpy()
    step = np.arange(masses.shape[2])
    position = n_prompt - 1 + step
    with np.errstate(divide="ignore", invalid="ignore"):
        context, own = masses[..., CONTENT] / n_content, masses[..., OWN] / step
        return {
            "sink_mass": masses[..., SINK],
            "structural_mass": masses[..., STRUCTURAL],
            "content_mass": masses[..., CONTENT],
            "own_mass": masses[..., OWN],
            "lookback_ratio": context / (context + own),
            "attention_entropy": steps.entropy_bits.double().numpy() / np.log2(position + 1),
            "attention_entropy_rest": steps.rest_entropy_bits.double().numpy() / np.log2(position),
            "previous_mass": np.where(position > 0, steps.previous.double().numpy(), np.nan),
        }


def thirds_of(n_layers: int) -> NDArray[np.int64]:
    """Which third of the layers each is in [L]: 0, 1 or 2, by where its middle lies; of one or two layers a third has
    none."""
    return np.floor((np.arange(n_layers) + 0.5) * 3 / n_layers).astype(np.int64)


def step_columns(steps: AttentionSteps, rendered: RenderedPrompt) -> list[dict[str, Any]]:
    """The columns that `records.attends` declares, for each step."""
    is_content = np.array([not p.is_structural for p in rendered.positions])
    measures = head_measures(steps, len(is_content), int(is_content[1:].sum()))
    third = thirds_of(steps.masses.shape[0])
    means: dict[str, Floats] = {}
    for measure in ATTENTION_MEASURES:
        by_layer = measures[measure].mean(1)
        means[measure] = by_layer.mean(0)
        for index, name in enumerate(THIRDS):
            chosen = by_layer[third == index]
            means[f"{measure}_{name}"] = chosen.mean(0) if len(chosen) else np.full(by_layer.shape[1], np.nan)
    columns = {name: [float(v) if np.isfinite(v) else None for v in values] for name, values in means.items()}
    reasons = _null_reasons(means, is_content)
    return [
        {**{name: values[step] for name, values in columns.items()}, "null_reason": reasons[step]}
        for step in range(steps.masses.shape[2])
    ]


def _null_reasons(means: dict[str, Floats], is_content: NDArray[np.bool_]) -> list[str | None]:
    """Why measures of each step are null, in words; None where all are defined."""
    n_prompt, no_content = len(is_content), not is_content[1:].any()
    no_layers = any(np.isnan(means[f"sink_mass_{third}"]).any() for third in THIRDS)
    found: list[str | None] = []
    for step, lookback in enumerate(means["lookback_ratio"]):
        reasons = [
            (step == 0, "lookback_ratio: the answer has no token yet"),
            (no_content, "lookback_ratio: no content after position 0"),
            (step > 0 and not no_content and np.isnan(lookback), "lookback_ratio: a head pays neither"),
            (n_prompt - 1 + step < 2, "attention_entropy, previous_mass: too few keys"),
            (no_layers, "thirds: under three layers"),
        ]
        found.append("; ".join(words for holds, words in reasons if holds) or None)
    return found


def head_records(keys: dict[str, Any], steps: AttentionSteps) -> list[object]:
    """`decode_attention_heads` of an answer."""
    lists = {
        "sink_mass": steps.masses[..., SINK],
        "structural_mass": steps.masses[..., STRUCTURAL],
        "content_mass": steps.masses[..., CONTENT],
        "own_mass": steps.masses[..., OWN],
        "previous_mass": steps.previous,
        "attention_entropy_bits": steps.entropy_bits,
        "attention_entropy_rest_bits": steps.rest_entropy_bits.nan_to_num(0.0),
    }
    halves = {name: values.half().numpy() for name, values in lists.items()}
    records: list[object] = []
    for layer, head in np.ndindex(steps.masses.shape[:2]):
        by_step: dict[str, Any] = {name: [*values[layer, head]] for name, values in halves.items()}
        records.append(DecodeAttentionHead(**keys, layer=layer, head=head, **by_step))
    return records
