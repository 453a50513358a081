"""Draw the figures of a run again, and the page that holds them, from its tables alone."""

from __future__ import annotations

from pathlib import Path

from specstudy.analysis.study import analyze
from specstudy.analysis.version_effects import unaltered_only
from specstudy.config import PROJECT_ROOT, from_mapping
from specstudy.running.answer import draw, settings_of
from specstudy.tables.manifest import configuration
from specstudy.tables.run import open_run


def figures(run: str = str(PROJECT_ROOT / "outputs" / "latest")) -> None:
    """`run` is a run directory; the last one if not given."""
    opened = open_run(Path(run).expanduser())
    tables = opened.frames()
    result = analyze(tables, settings_of(from_mapping(configuration(opened.manifest))))
    print(*draw(result, unaltered_only(tables), opened.manifest, opened.path), sep="\n")
