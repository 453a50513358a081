"""Two runs side by side: what they were made with, paired differences of what was measured, claims, token ids."""

from __future__ import annotations

from pathlib import Path

from specstudy.config import PROJECT_ROOT
from specstudy.errors import UserError
from specstudy.tables.run import Run, open_run

OUTPUT_DIR = PROJECT_ROOT / "outputs"


def compare(a: str, b: str) -> None:
    """`a` and `b` are run directories, or names of run directories in outputs/; differences are b minus a."""
    paths = [find_run("a", a), find_run("b", b)]
    # Imported here: statistics take seconds, which a wrong word need not wait for.
    from specstudy.analysis.bootstrap import AnalysisSettings
    from specstudy.analysis.compare import COMPARED_TABLES, Side
    from specstudy.analysis.compare import compare as compare_runs
    from specstudy.report.compare import print_comparison

    def side(run: Run) -> Side:
        tables = {name: run.table(name) for name in run.tables if name in COMPARED_TABLES}
        return Side(title(run.path), run.config, run.manifest, tables)

    left, right = (side(open_run(path)) for path in paths)
    print_comparison(compare_runs(left, right, AnalysisSettings()), left, right)


def find_run(name: str, given: str) -> Path:
    """The path that is given, or the run of that name in outputs/. Raises UserError if neither is there."""
    for path in (Path(given).expanduser(), OUTPUT_DIR / given):
        if path.exists():
            return path
    raise UserError(f"{name}={given}: no such directory, here or in {OUTPUT_DIR}; `make runs` lists the runs there are")


def title(path: Path) -> str:
    """A run's name where it lies in outputs/, else its path: the same study has the same name on every machine."""
    return path.name if path.parent == OUTPUT_DIR else str(path)
