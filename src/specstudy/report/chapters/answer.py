"""The answer: each link of the chain with its verdict, and other findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specstudy.analysis.join import Tables
from specstudy.analysis.study import AnalysisResult
from specstudy.records import Claim, Correlation
from specstudy.report.chapters.chapter import Chapter, Context
from specstudy.report.narrative import overview
from specstudy.report.narrative.machine import machine_sentences


@dataclass(frozen=True)
class Link:
    """One link of the chain: the claim that answers it, the values at which its verdict turns, the correlation with
    nothing held constant, and its ceiling."""

    name: str
    claim: Claim
    boundaries: tuple[float, ...]
    observed: Correlation | None
    ceiling: float | None


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context:
    findings = [
        overview.speed_sentence(result),
        *machine_sentences(result),
        overview.reliability_sentence(result),
        overview.repetitive_sentence(result),
        *overview.constant_measures(result),
    ]
    return {
        "chain": overview.chain_sentence(result),
        "links": _links(result),
        "findings": [sentence for sentence in (*findings, overview.failures_sentence(tables)) if sentence],
    }


def _links(result: AnalysisResult) -> list[Link]:
    links = []
    for declared, claim in zip(result.declarations, result.claims, strict=True):
        if declared.link:
            observed = result.chain_correlation(declared, "all")
            limit = result.ceiling(declared)
            links.append(Link(declared.link, claim, declared.boundaries, observed, limit))
    return links


CHAPTER = Chapter("answer", "Answer", context)
