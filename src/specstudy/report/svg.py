"""A figure as part of the page."""

from __future__ import annotations

import re

from markupsafe import Markup

from specstudy.report import style


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
    for color in style.THEMED:
        svg = svg.replace(f": {color}", f": {style.themed(color)}")
    return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{name.replace("_", " ")}" style="{size}"', 1))
