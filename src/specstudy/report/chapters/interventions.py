"""Interventions on one link: versions of prompts against their controls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specstudy.analysis.join import Tables
from specstudy.analysis.measures import measures_in, phrase
from specstudy.analysis.study import AnalysisResult
from specstudy.analysis.version_effects import PER_DOSE
from specstudy.report.chapters.chapter import Chapter, Context
from specstudy.report.narrative.interventions import kind_words, link_sentences, mass_sentences

FAMILIES = ("interventions", "sinks_lowered", "temperatures")


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context | None:
    told = result.interventions
    if told.versions.empty:
        return None
    known = {row.measure for row in told.effects if row.difference is not None}
    measured = [name for name in measures_in("versions") if name in known]
    keys = dict.fromkeys((row.kind, row.dose) for row in told.effects)
    with_doses = {kind for kind, dose in keys if dose > 1}
    return {
        "n_originals": told.versions["original_id"].nunique(),
        "n_versions": len(told.versions),
        "links": link_sentences(told.links),
        "claims": [claim for claim in result.claims if claim.family in FAMILIES and claim.verdict != "not_run"],
        "masses": mass_sentences(told.versions),
        "measures": [phrase(name) for name in measured],
        "effects": [
            (
                _dose_words(dose, kind in with_doses),
                kind_words(kind),
                [told.effect(kind, dose, name) for name in measured],
            )
            for kind, dose in keys
        ],
        "models": [(row, kind_words(row.kinds), phrase(row.x), phrase(row.y)) for row in told.models],
    }


def _dose_words(dose: int, has_doses: bool) -> str:
    return str(dose) if dose != PER_DOSE else "change per dose" if has_doses else ""


CHAPTER = Chapter("interventions", "Interventions on one link", context)
