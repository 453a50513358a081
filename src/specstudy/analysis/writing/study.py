"""The whole analysis of attention while writing: tables in, answers out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings, Estimate
from specstudy.analysis.join import Tables
from specstudy.analysis.writing.explained import attention_explained
from specstudy.analysis.writing.heads import attention_head_links
from specstudy.analysis.writing.links import Key, attention_links
from specstudy.analysis.writing.tokens import drafts_tested, written_tokens
from specstudy.condition import Condition
from specstudy.records import AttentionExplained, AttentionHeadLink, AttentionLink


@dataclass(frozen=True)
class WritingAnalysis:
    """Rows of the tables of the same names, none where a run did not record attention while writing.

    `links`: estimates by measure, layers and outcome; `by_prompt`: each prompt's coefficient, likewise. `gains`: what
    attention adds, by outcome and what is held. `chosen_heads`: estimates by measure and way of choosing.
    """

    attention_links: list[AttentionLink]
    attention_explained: list[AttentionExplained]
    attention_head_links: list[AttentionHeadLink]
    links: Mapping[Key, Estimate]
    by_prompt: Mapping[Key, pd.Series]
    gains: Mapping[tuple[str, str], Estimate]
    chosen_heads: Mapping[tuple[str, str], Estimate]


def analyze_writing(tables: Tables, primary: Condition | None, settings: AnalysisSettings) -> WritingAnalysis:
    """Everything about attention while writing, from a study's tables (any may be missing)."""
    written = written_tokens(tables)
    tested = drafts_tested(tables, primary) if primary else pd.DataFrame()
    links = attention_links(written, tested, tables, settings)
    explained = attention_explained(written, settings)
    heads = attention_head_links(written, tables, settings)
    return WritingAnalysis(
        attention_links=links.rows,
        attention_explained=explained.rows,
        attention_head_links=heads.rows,
        links=links.estimates,
        by_prompt=links.by_prompt,
        gains=explained.gains,
        chosen_heads=heads.chosen,
    )
