"""The runs in output_dir: when, how far, and how each configuration differs from the one given here (the defaults)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import entry
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specstudy.config import StudyConfig, local_path, to_mapping
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
        differing = "\n".join(f"{key} {_shown(here)} ({_shown(there)})" for key, (here, there) in run.differing.items())
        n_prompts = "" if run.n_prompts is None else str(run.n_prompts)
        # Text, not str: names and values are data, in which rich would see markup.
        table.add_row(*(Text(cell) for cell in (run.name, started, run.state, stages, n_prompts, differing)))
    return table


def _stage(name: str, counts: Mapping[str, Any]) -> str:
    failed = counts.get("n_failed")
    return f"{name} {counts.get('n_done', '')}".rstrip() + (f", {failed} failed" if failed else "")


def _shown(value: object) -> str:
    """A value as one would write it in an override; a list of one is written as that one."""
    if isinstance(value, list):
        items = ",".join(_shown(item) for item in value)
        return items if len(value) == 1 else f"[{items}]"
    return value if isinstance(value, str) else json.dumps(value)


if __name__ == "__main__":
    entry.main(runs)
