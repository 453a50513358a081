"""Acceptance token by token: against draft entropy, and by place in the round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specstudy.analysis.join import Tables
from specstudy.analysis.study import AnalysisResult
from specstudy.report.chapters.chapter import Chapter, Context


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context | None:
    asked = ("all", "within_prompt")
    rows = [(pair, row) for pair, row in result.by_pair.items() if pair.level == "token" and pair.subset in asked]
    return {"rows": rows} if rows else None


CHAPTER = Chapter("acceptance", "Acceptance, token by token", context)
