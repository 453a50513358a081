"""With what, on what and from what configuration the run was made: the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specstudy.analysis.join import Tables
from specstudy.analysis.study import AnalysisResult
from specstudy.report.chapters.chapter import Chapter, Context
from specstudy.tables.differences import flatten


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context | None:
    sections = [
        (name, flatten(section))
        for name, section in manifest.items()
        if isinstance(section, Mapping) and section and name != "self_checks"
    ]
    # A run ends after its page is made.
    sections = [(n, {k: v for k, v in s.items() if n != "time" or v is not None}) for n, s in sections]
    return {"sections": sections} if sections else None


CHAPTER = Chapter("environment", "Environment", context)
