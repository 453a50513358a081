"""The page: one file that opens offline, with the answer first; its chapters are in `report.chapters`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from specstudy import __version__
from specstudy.analysis.join import Tables
from specstudy.analysis.measures import condition_name, label, phrase
from specstudy.analysis.study import AnalysisResult
from specstudy.report import style
from specstudy.report.chapters import CHAPTERS
from specstudy.report.figures import CAPTIONS
from specstudy.report.narrative import overview
from specstudy.report.prompt_view import DARKEST_BITS, ENTROPY_LEVELS
from specstudy.report.svg import inline_svg
from specstudy.tables.files import write_atomically


@dataclass(frozen=True)
class WrittenChapter:
    """A chapter as it stands in the page."""

    name: str
    title: str
    body: Markup


def render(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any], figures_dir: Path, path: Path) -> None:
    """Writes the page to `path`, whole or not at all; figures are the SVG files in `figures_dir` (those missing are
    left out). Raises UserError where it cannot be written."""
    environment = _environment(figures_dir)
    environment.globals |= _common(result)
    chapters = []
    for chapter in CHAPTERS:
        context = chapter.context(result, tables, manifest)
        template = environment.get_template(f"chapters/{chapter.name}.html.j2")
        if context is not None and (body := template.render(context).strip()):
            chapters.append(WrittenChapter(chapter.name, chapter.title, Markup(body)))
    page = environment.get_template("report.html.j2").render(
        chapters=chapters,
        version=__version__,
        models=overview.models_sentence(manifest),
        alarm=overview.alarm(manifest),
    )
    write_atomically(path, page.encode())


def _environment(figures_dir: Path) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("specstudy.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"number": style.number, "p": style.p_value, "label": label, "phrase": phrase}
    environment.filters |= {"readable": style.readable_token, "visible": style.visible_token, "themed": style.themed}
    environment.globals |= {"interval": style.interval, "verdict_words": overview.verdict_words}
    environment.globals |= {"figure": lambda name: figure(name, figures_dir)}
    return environment


def _common(result: AnalysisResult) -> dict[str, Any]:
    """What every template is given."""
    return {
        "result": result,
        "confidence": style.percent(result.settings.confidence),
        "primary": condition_name(result.primary, result.suffixes) if result.primary else "",
        "marks": style.category_marks(result.prompts["category"]),
        "levels": range(ENTROPY_LEVELS + 1),
        "darkest_bits": DARKEST_BITS,
    }


_FIGURE = """<figure id="figure-{name}">
<div class="drawing" tabindex="0" role="region" aria-label="{title}">{svg}</div>
<figcaption>{caption}</figcaption>
</figure>"""


def figure(name: str, figures_dir: Path) -> Markup:
    """A figure with its caption; nothing where it was not drawn. Raises KeyError if there is no such figure."""
    caption, file = CAPTIONS[name], figures_dir / f"{name}.svg"
    if not file.is_file():
        return Markup()
    svg = inline_svg(file.read_text(encoding="utf-8"), name)
    return Markup(_FIGURE).format(name=name, title=name.replace("_", " "), svg=svg, caption=caption)
