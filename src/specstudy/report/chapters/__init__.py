"""The chapters of the page, in the order in which they are read."""

from __future__ import annotations

from specstudy.report.chapters import (
    acceptance,
    answer,
    categories,
    chain,
    claims,
    environment,
    gammas,
    interventions,
    mechanism,
    prompts,
    references,
    reliability,
    retention,
    routing,
    sampling,
    self_checks,
    sinks,
    speed,
    stop_rules,
    writing,
)
from specstudy.report.chapters.chapter import Chapter

CHAPTERS: tuple[Chapter, ...] = (
    answer.CHAPTER,
    claims.CHAPTER,
    chain.CHAPTER,
    Chapter("context", "Measures of context"),
    sinks.CHAPTER,
    writing.CHAPTER,
    categories.CHAPTER,
    acceptance.CHAPTER,
    mechanism.CHAPTER,
    speed.CHAPTER,
    gammas.CHAPTER,
    stop_rules.CHAPTER,
    sampling.CHAPTER,
    interventions.CHAPTER,
    retention.CHAPTER,
    routing.CHAPTER,
    reliability.CHAPTER,
    prompts.CHAPTER,
    Chapter("method", "Method"),
    self_checks.CHAPTER,
    environment.CHAPTER,
    Chapter("limits", "Limits"),
    references.CHAPTER,
)
