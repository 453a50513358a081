"""Each prompt to be read: attention received, the answer by entropy, every speculative round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specstudy.analysis.join import Tables
from specstudy.analysis.study import AnalysisResult
from specstudy.report.chapters.chapter import Chapter, Context
from specstudy.report.prompt_view import PromptViews

# More sections than this would make the page heavy; `make show` draws any prompt.
PROMPT_SECTIONS = 100


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context | None:
    rows = result.prompts.iloc[:PROMPT_SECTIONS]
    if rows.empty:
        return None
    shown = [str(prompt_id) for prompt_id in rows.index]
    held = {name: frame[frame["prompt_id"].isin(shown)] for name, frame in tables.items() if "prompt_id" in frame}
    views = PromptViews(held, result.primary)
    return {
        "views": (views.view(prompt_id) for prompt_id in shown),
        "rows": dict(zip(shown, (row for _, row in rows.iterrows()), strict=True)),
        "n_left_out": len(result.prompts) - len(shown),
    }


CHAPTER = Chapter("prompts", "Prompts", context)
