"""Attention while writing: the first link, token by token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specstudy.analysis.join import Tables
from specstudy.analysis.study import AnalysisResult
from specstudy.report.chapters.chapter import Chapter, Context
from specstudy.report.narrative.writing import gain_sentences, head_sentences, link_sentences


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context | None:
    writing = result.writing
    if all(row.estimate is None for row in writing.attention_links):
        return None
    return {
        "links": [*link_sentences(writing)],
        "gains": [*gain_sentences(writing.attention_explained)],
        "heads": [*head_sentences(writing.attention_head_links)],
        "rows": [row for row in writing.attention_links if row.layers == "all"],
    }


CHAPTER = Chapter("writing", "Attention while writing", context)
