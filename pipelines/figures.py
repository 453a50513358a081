"""Draw the figures of a run again, from its tables alone."""

from __future__ import annotations

import entry
from analyze import settings_of

from specstudy.analysis.study import analyze
from specstudy.analysis.version_effects import unaltered_only
from specstudy.config import PROJECT_ROOT, from_mapping
from specstudy.report.figures import draw_all
from specstudy.tables.manifest import configuration
from specstudy.tables.run import open_run


def figures(run: str = str(PROJECT_ROOT / "outputs" / "latest")) -> None:
    """`run` is a run directory; the last one if not given."""
    from pathlib import Path

    opened = open_run(Path(run).expanduser())
    tables = {name: opened.table(name) for name in opened.tables}
    config = from_mapping(configuration(opened.manifest))
    result = analyze(tables, settings_of(config))
    for path in draw_all(result, unaltered_only(tables), opened.path / "figures"):
        print(path)


if __name__ == "__main__":
    entry.command(figures, names=["run"])
