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
    views = PromptViews(tables, result.primary)
    if not views.categories:
        return None
    shown = list(views.categories)[:PROMPT_SECTIONS]
    return {
        "views": (views.view(prompt_id) for prompt_id in shown),
        "rows": {str(prompt_id): row for prompt_id, row in result.prompts.iterrows()},
        "n_left_out": len(views.categories) - len(shown),
    }


CHAPTER = Chapter("prompts", "Prompts", context)
