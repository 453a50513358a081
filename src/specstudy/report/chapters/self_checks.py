"""What the program checked of itself on this pair, device and precision, and which prompts failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specstudy.analysis.join import Tables, frame_of
from specstudy.analysis.study import AnalysisResult
from specstudy.report.chapters.chapter import Chapter, Context
from specstudy.report.checks import check_rows


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context | None:
    errors = frame_of(tables, "errors").to_dict("records")
    checks = list(check_rows(manifest))
    return {"checks": checks, "errors": errors} if checks or errors else None


CHAPTER = Chapter("self_checks", "Self-checks and failures", context)
