"""A mixture of experts: how many experts verifying touches, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specstudy.analysis.join import Tables
from specstudy.analysis.study import AnalysisResult
from specstudy.report.chapters.chapter import Chapter, Context
from specstudy.report.narrative.routing import experts_sentence

_WORDS = {
    "overlap_with_previous": "overlap with the token before",
    "overlap_by_popularity": "of it, what popularity alone would give",
    "overlap_temporal": "of it, the rest: texts and neighbours",
    "load_variation": "coefficient of variation of the load",
    "switch_balance": "Switch balance (1: balanced)",
    "gate_entropy_bits": "gate entropy, bits",
    "accepted_minus_rejected_gate_entropy_bits": "gate entropy, accepted against rejected (Cohen's d)",
    "accepted_minus_rejected_overlap": "overlap, accepted against rejected (Cohen's d)",
    "accepted_minus_rejected_new_experts": "experts new to the pass, accepted against rejected (Cohen's d)",
    "gate_entropy_bits_with_token_entropy": "gate entropy with the next token's entropy, within answers (Spearman)",
    "overlap_with_token_entropy": "overlap with the next token's entropy, within answers (Spearman)",
    "gate_entropy_bits_with_context_health": "gate entropy with soft context health, over prompts (Spearman)",
    "overlap_with_context_health": "overlap with soft context health, over prompts (Spearman)",
}


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context | None:
    if result.routing is None:
        return None
    return {
        "layers": result.routing.layers,
        "sentence": experts_sentence(result),
        "measures": [(words, result.routing.measure(name)) for name, words in _WORDS.items()],
        "costs": result.routing.costs(batch=1),
    }


CHAPTER = Chapter("routing", "Experts: what verifying costs", context)
