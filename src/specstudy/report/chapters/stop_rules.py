"""Rules that end a draft early: what they save and cost, and the bound on which one of them rests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specstudy.analysis.join import Tables
from specstudy.analysis.measures import measures_in, phrase
from specstudy.analysis.study import AnalysisResult
from specstudy.condition import Condition
from specstudy.report.chapters.chapter import Chapter, Context
from specstudy.report.figures.stop_rules import fixed_pairs


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context | None:
    pairs = fixed_pairs(result)
    if not pairs and not result.entropy_bounds:
        return None
    names = measures_in("differences")
    measures, differences = result.comparison.measures, result.comparison.differences
    shown = sorted({condition for pair in pairs for condition in pair})
    bounds = {(row.category, row.measure): row for row in result.entropy_bounds}
    return {
        "measures": [phrase(name) for name in names],
        "conditions": [(s, _drafts(s), [measures[s, name] for name in names]) for s in shown],
        "pairs": [(s, r, _drafts(s), [differences[s, r, name] for name in names]) for s, r in pairs],
        "bounds": [
            (category, bounds[category, "violated_share"], bounds[category, "c95"])
            for category in dict.fromkeys(category for category, _ in bounds)
        ],
        "decode": manifest.get("config", {}).get("decode", {}),
    }


def _drafts(condition: Condition) -> str:
    return "fixed length" if condition.stop == "none" else condition.rule


CHAPTER = Chapter("stop_rules", "Ending a draft early", context)
