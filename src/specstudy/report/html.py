"""The page: one file that opens offline, with the answer first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from specstudy import __version__
from specstudy.analysis.correlations import METHODS, chain_pairs
from specstudy.analysis.join import Tables, frame_of
from specstudy.analysis.measures import ACCEPTANCE_MEASURES, COST_MEASURES, SPEED_MEASURES, label, phrase, setting_name
from specstudy.analysis.reliability import ceiling
from specstudy.analysis.study import AnalysisResult
from specstudy.records import Claim, Correlation
from specstudy.report import style, words
from specstudy.report.figures import CAPTIONS
from specstudy.report.prompt_view import ENTROPY_LEVELS, PromptViews
from specstudy.tables.differences import flatten

# More sections than this would make the page heavy; `make show` draws any prompt.
PROMPT_SECTIONS = 100
PARTIAL_SUBSETS = ("all", "within_category", "given_length", "within_category_given_length")


@dataclass(frozen=True)
class Link:
    """One link of the chain: the claim that answers it and the correlations behind it."""

    name: str
    claim: Claim
    held_constant: Correlation | None
    ceiling: float | None


@dataclass(frozen=True)
class Drawing:
    """A figure ready to stand in the page."""

    name: str
    caption: str
    svg: Markup


def render(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any], figures_dir: Path, path: Path) -> None:
    """Writes the page to `path`; figures are the SVG files in `figures_dir` (those missing are left out)."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("specstudy.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"number": style.number, "p": style.p_value, "label": label, "phrase": phrase}
    environment.filters |= {"shown": shown_token, "visible": style.visible_token}
    environment.globals |= {"interval": style.interval, "verdicts": words.VERDICTS}
    page = environment.get_template("report.html.j2").render(_context(result, tables, manifest, figures_dir))
    path.write_text(page, encoding="utf-8")


def _context(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any], figures_dir: Path) -> dict[str, Any]:
    views = PromptViews(tables, result.primary)
    shown = list(views.categories)[:PROMPT_SECTIONS]
    categories = list(result.prompts.groupby("category").size().index)
    return {
        "version": __version__,
        "result": result,
        "settings": result.settings,
        "confidence": f"{result.settings.confidence * 100:g} %",
        "models": words.models_sentence(manifest),
        "chain": words.chain_sentence(result),
        "speed": words.speed_sentence(result),
        "reliability_sentence": words.reliability_sentence(result),
        "constant": words.constant_measures(result),
        "failures": words.failures_sentence(tables),
        "errors": frame_of(tables, "errors").to_dict("records"),
        "links": _links(result),
        "sources": {declared.id: declared.source for declared in result.declarations},
        "categories": categories,
        "marks": style.category_marks(categories),
        "summary": _summary(result, categories),
        "settings_table": _settings_table(result),
        "prompt_pairs": _prompt_pairs(result),
        "subsets": PARTIAL_SUBSETS,
        "token_rows": [r for r in result.correlations if r.level == "token" and r.subset in ("all", "within_prompt")],
        "reliability": result.reliability.to_dict("records"),
        "figures": _drawings(figures_dir),
        "views": (views.view(prompt_id) for prompt_id in shown),
        "rows": {str(prompt_id): row for prompt_id, row in result.prompts.iterrows()},
        "n_left_out": len(views.categories) - len(shown),
        "n_prompts": len(result.prompts),
        "levels": range(ENTROPY_LEVELS + 1),
        "primary": setting_name(result.primary, result.suffixes) if result.primary else "",
        "suffix": result.primary_suffix,
        "environment": _environment(manifest),
        "self_checks": flatten(manifest.get("self_checks", {})),
    }


def _links(result: AnalysisResult) -> list[Link]:
    links = []
    for declared, claim in zip(result.declarations, result.claims, strict=True):
        if declared.link:
            held = result.chain_correlation(declared, "within_category_given_length")
            limit = ceiling(result.reliability, held.x, held.y) if held else None
            links.append(Link(declared.link, claim, held, limit))
    return links


def _summary(result: AnalysisResult, categories: list[str]) -> list[dict[str, Any]]:
    """Rows of the table by category: the category and a cell for each summary measure."""
    return [
        {
            "category": category,
            "n": int((result.prompts["category"] == category).sum()) if category != "all" else len(result.prompts),
            "cells": {
                name: words.mean_row(result, measure, category)
                for name, measure in words.summary_measures(result).items()
            },
        }
        for category in [*categories, "all"]
    ]


def _settings_table(result: AnalysisResult) -> list[dict[str, Any]]:
    measures = (*ACCEPTANCE_MEASURES, *SPEED_MEASURES, *COST_MEASURES)
    return [
        {
            "measure": label(measure),
            "cells": [words.mean_row(result, measure + suffix) for suffix in result.suffixes.values()],
        }
        for measure in measures
        if result.suffixes
    ]


def _prompt_pairs(result: AnalysisResult) -> list[dict[str, Any]]:
    """Every pair of the chain at the primary setting: a correlation a subset, Spearman then Pearson."""
    return [
        {"x": x, "y": y, "method": method, "cells": [result.find("prompt", s, x, y, method) for s in PARTIAL_SUBSETS]}
        for x, y in chain_pairs([result.primary_suffix] if result.primary else [])
        for method in reversed(METHODS)
    ]


def _environment(manifest: Mapping[str, Any]) -> list[tuple[str, dict[str, object]]]:
    """The manifest's sections, each flattened to dotted keys."""
    return [
        (name, flatten(section))
        for name, section in manifest.items()
        if isinstance(section, Mapping) and section and name != "self_checks"
    ]


def _drawings(figures_dir: Path) -> list[Drawing]:
    paths = {name: figures_dir / f"{name}.svg" for name in CAPTIONS}
    return [
        Drawing(name, CAPTIONS[name], inline_svg(file.read_text(encoding="utf-8"), name))
        for name, file in paths.items()
        if file.is_file()
    ]


_THEMED = {style.INK: "ink", style.MUTED: "muted", style.GRID: "grid", style.PAPER: "paper"}


def inline_svg(text: str, name: str) -> Markup:
    """A Matplotlib SVG as part of the page: its ids made its own, its inks those of the page, its size the reader's.

    Matplotlib escapes all text in what it writes, and the file is this project's own, so it is trusted as markup.
    """
    svg = text[text.index("<svg") :]
    width = re.search(r'<svg[^>]*? width="([0-9.]+)pt"', svg)
    size = f"--width: {float(width[1]):.0f}pt" if width else ""
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    for color, variable in _THEMED.items():
        svg = svg.replace(f": {color}", f": var(--{variable})")
    return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{name.replace("_", " ")}" style="{size}"', 1))


def shown_token(token: str) -> str:
    """A token as it stands in running text: line breaks are marked and kept, control characters made visible."""
    shown = token.replace("\r", "").replace("\n", "↵\n")
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in shown)
