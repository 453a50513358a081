"""The runs in output_dir: when, how far, and how each configuration differs from the one given here (the defaults)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specstudy.config import StudyConfig, local_path, to_mapping
from specstudy.tables.differences import override_text
from specstudy.tables.listing import RunSummary, list_runs

_WIDTH_OF_A_FILE = 160


def runs(config: StudyConfig) -> None:
    """Prints the table of runs; further words (`spec.gamma=6`) change what the configurations are compared with."""
    output_dir = local_path(config.output_dir)
    found = list_runs(output_dir, to_mapping(config))
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_OF_A_FILE)
    if found:
        console.print(_table(found))
    else:
        console.print(Text(f"no runs in {output_dir} yet; `make study` makes the first"))


def _table(found: list[RunSummary]) -> Table:
    table = Table("run", "started", "state", "stages", "prompts", "differs: here (there)")
    for run in found:
        started = (run.started or "")[:16].replace("T", " ")
        stages = "\n".join(_stage(name, counts) for name, counts in run.stages.items())
        differing = "\n".join(
            f"{key} {override_text(here)} ({override_text(there)})" for key, (here, there) in run.differing.items()
        )
        n_prompts = "" if run.n_prompts is None else str(run.n_prompts)
        # Text, not str: names and values are data, in which rich would see markup.
        cells = (run.name, started, _state(run), stages, n_prompts, differing)
        table.add_row(*map(Text, cells), style="bold red" if run.failed_checks else None)
    return table


def _state(run: RunSummary) -> str:
    return f"{run.state}, SELF-CHECK FAILED in {', '.join(run.failed_checks)}" if run.failed_checks else run.state


def _stage(name: str, counts: Mapping[str, Any]) -> str:
    failed = counts.get("n_failed")
    return f"{name} {counts.get('n_done', '')}".rstrip() + (f", {failed} failed" if failed else "")
