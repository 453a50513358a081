"""What a chapter of the page is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from specstudy.analysis.join import Tables
from specstudy.analysis.study import AnalysisResult

Context = Mapping[str, Any]


def nothing_of_its_own(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any]) -> Context:
    """The context of a chapter whose template needs only what every template is given."""
    return {}


@dataclass(frozen=True)
class Chapter:
    """A chapter: `name` is its anchor and names its template, `templates/chapters/<name>.html.j2`.

    `context` gives what the template shows beyond what every template is given (see `html._common`), or None where this
    run has no data for the chapter. Such a chapter is left out, and so is one whose template shows nothing.
    """

    name: str
    title: str
    context: Callable[[AnalysisResult, Tables, Mapping[str, Any]], Context | None] = nothing_of_its_own
