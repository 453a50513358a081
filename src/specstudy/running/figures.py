"""Draw the figures of a run again, and the page that holds them, from its tables alone."""

from __future__ import annotations

from specstudy.analysis.study import analyze
from specstudy.analysis.version_effects import unaltered_only
from specstudy.config import PROJECT_ROOT, from_mapping
from specstudy.report import html
from specstudy.report.figures import draw_all
from specstudy.running.answer import settings_of
from specstudy.tables.manifest import configuration
from specstudy.tables.run import open_run


def figures(run: str = str(PROJECT_ROOT / "outputs" / "latest")) -> None:
    """`run` is a run directory; the last one if not given."""
    from pathlib import Path

    opened = open_run(Path(run).expanduser())
    tables = {name: opened.table(name) for name in opened.tables}
    config = from_mapping(configuration(opened.manifest))
    result = analyze(tables, settings_of(config))
    shown, directory, page = unaltered_only(tables), opened.path / "figures", opened.path / "report.html"
    drawn = draw_all(result, shown, directory)
    html.render(result, shown, opened.manifest, directory, page)
    for path in (*drawn, page):
        print(path)
