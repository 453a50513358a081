"""Rotary frequencies that depend on how long the text is: up to where they are those of every shorter text."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig

ENDS_THERE = "beyond it rotary frequencies depend on the length"


def constant_frequencies(config: PreTrainedConfig) -> int | None:
    """The longest text whose tokens all have the frequencies of a short one; None for a model without such a limit.

    `longrope` (Phi-3) takes other frequencies for every token of a text beyond `original_max_position_embeddings`,
    `dynamic` NTK beyond `max_position_embeddings`. What is cached then has the old ones: transformers drops the cache
    of Phi-3 there and goes on with that of the others, and no pass over several tokens has both. So texts end before.
    """
    text = config.get_text_config(decoder=True)
    stated = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    nested = [part for part in stated.values() if isinstance(part, dict)]
    limits = [limit for part in nested or [stated] if (limit := _limit(text, part)) is not None]
    return min(limits, default=None)


def _limit(config: Any, rope: dict[str, Any]) -> int | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    whole: int | None = getattr(config, "max_position_embeddings", None)
    if kind in ("longrope", "su"):  # its first name, in code that comes with a model
        original = getattr(config, "original_max_position_embeddings", None)
        return original or rope.get("original_max_position_embeddings") or whole
    # A fixed alpha (HunYuan) does not follow the length.
    return whole if "dynamic" in kind and not rope.get("alpha") else None
