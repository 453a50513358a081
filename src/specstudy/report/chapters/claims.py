"""Every claim with its verdict, estimate, margin, and what so many prompts could show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specstudy.analysis.join import Tables
from specstudy.analysis.study import AnalysisResult
from specstudy.report.chapters.chapter import Chapter, Context
from specstudy.report.narrative import overview


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context:
    return {
        "counts": overview.claims_sentence(result),
        "seen": overview.seen_sentence(result),
        "sources": {declared.id: declared.source for declared in result.declarations},
    }


CHAPTER = Chapter("claims", "Claims", context)
