"""How repeatable each measure is, which bounds every correlation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specstudy.analysis.join import Tables
from specstudy.analysis.study import AnalysisResult
from specstudy.report.chapters.chapter import Chapter, Context


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context | None:
    rows = result.reliability.to_dict("records")
    return {"rows": rows} if rows else None


CHAPTER = Chapter("reliability", "Reliability of the measures", context)
