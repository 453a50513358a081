"""What keys are worth in a cache: which are kept after prefill, and what the rest cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specstudy.analysis.join import Tables
from specstudy.analysis.measures import label
from specstudy.analysis.retention import MEASURES
from specstudy.analysis.study import AnalysisResult
from specstudy.records import RetentionCost
from specstudy.report.chapters.chapter import Chapter, Context
from specstudy.report.figures.retention import POLICY_WORDS

_WORDS = {"mean_entropy_bits": "entropy of the model (bits)"}


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context | None:
    if not result.retention:
        return None
    found = {(row.model, row.policy, row.budget, row.minus, row.measure): row for row in result.retention}
    keys = dict.fromkeys(key[:-1] for key in found)
    return {
        "measures": [_WORDS.get(name, label(name)) for name in MEASURES],
        "words": POLICY_WORDS,
        "means": [(key, _cells(found, key)) for key in keys if not key[3]],
        "differences": [(key, _cells(found, key)) for key in keys if key[3]],
        "claims": [claim for claim in result.claims if claim.family == "retention"],
    }


def _cells(
    found: Mapping[tuple[str, str, float, str, str], RetentionCost], key: tuple[str, str, float, str]
) -> list[RetentionCost]:
    return [found[*key, name] for name in MEASURES]


CHAPTER = Chapter("retention", "What keys are worth in a cache", context)
