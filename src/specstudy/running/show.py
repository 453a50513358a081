"""One prompt in the terminal: what was attended to, the answer by entropy, every speculative round."""

from __future__ import annotations

from pathlib import Path

from specstudy.config import PROJECT_ROOT, from_mapping
from specstudy.report import terminal
from specstudy.tables.run import open_run


def show(id: str, run: str = str(PROJECT_ROOT / "outputs" / "latest")) -> None:
    """`id` is a prompt_id of the run; `run` a run directory, the last one if not given."""
    opened = open_run(Path(run).expanduser())
    terminal.show_prompt(opened.frames(), id, from_mapping(opened.config).spec.primary)
