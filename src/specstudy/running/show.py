"""Of a run, in the terminal: one prompt with its tokens and rounds, every claim, or every self-check."""

from __future__ import annotations

from pathlib import Path

from specstudy.config import PROJECT_ROOT, from_mapping
from specstudy.errors import UserError, no_such
from specstudy.report import claims_terminal, terminal
from specstudy.tables.run import open_run
from specstudy.tables.run_directory import read_table
from specstudy.tables.schema import to_records

SUBJECTS = ("claims", "checks")


def show(what: str = "", id: str = "", run: str = str(PROJECT_ROOT / "outputs" / "latest")) -> None:
    """`what` is one of SUBJECTS, or `id` a prompt_id of the run; `run` a run directory, the last one if not given."""
    if what and what not in SUBJECTS:
        raise no_such("subject", what, SUBJECTS)
    if bool(what) == bool(id):
        raise UserError(f"give a prompt as id=..., or one of {', '.join(SUBJECTS)}")
    opened = open_run(Path(run).expanduser())
    if what == "checks":
        claims_terminal.show_checks(opened.manifest)
    elif what == "claims":
        claims_terminal.show_claims(to_records("claims", read_table(opened.path, "claims")))
    else:
        terminal.show_prompt(opened.frames(), id, from_mapping(opened.config).spec.primary)
