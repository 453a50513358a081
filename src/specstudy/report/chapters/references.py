"""What the claims, measures and formulas were taken from."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

import yaml

from specstudy.analysis.join import Tables
from specstudy.analysis.study import AnalysisResult
from specstudy.report.chapters.chapter import Chapter, Context


def references() -> dict[str, str]:
    """Each reference in full, by the form in which it is cited."""
    entries = yaml.safe_load(resources.files("specstudy.report").joinpath("references.yaml").read_bytes())
    return {entry["cited"]: entry["reference"] for entry in entries}


def context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context:
    return {"references": references()}


CHAPTER = Chapter("references", "References", context)
