"""The claims and the self-checks of a run in the terminal, a line each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.table import Table
from rich.text import Text

from specstudy.errors import UserError
from specstudy.records import Claim
from specstudy.report.checks import check_rows
from specstudy.report.console import report_console, report_table
from specstudy.report.narrative import overview
from specstudy.report.style import interval, number

_VERDICT_STYLES = {"supported": "green", "contradicted": "red", "undecided": "yellow", "not_run": "dim"}


def show_claims(claims: Sequence[Claim]) -> None:
    """Prints every claim by family, in the order of declaration; those that need another run are one line in all."""
    console = report_console()
    asked = [claim for claim in claims if not _runs_needed(claim)]
    if asked:
        console.print(_table(asked))
    if elsewhere := [claim for claim in claims if _runs_needed(claim)]:
        runs = ", ".join(f"make study {word}" for word in dict.fromkeys(w for c in elsewhere for w in _runs_needed(c)))
        console.print(Text(f"{len(elsewhere)} claims need another run: {runs}."))
    console.print(Text(f"In all: {overview.counts(claims)}."))


def _runs_needed(claim: Claim) -> list[str]:
    """The experiments that a claim which was not run says it needs."""
    return re.findall(r"experiment=\w+", claim.note) if claim.verdict == "not_run" else []


def _table(claims: Sequence[Claim]) -> Table:
    table = report_table("Claims")
    table.add_column("verdict", no_wrap=True)
    table.add_column("estimate", justify="right", no_wrap=True)
    table.add_column("claim")
    for family, members in groupby(sorted(claims, key=_by_family(claims)), key=lambda claim: claim.family):
        table.add_row("", "", Text(family.replace("_", " "), style="bold"))
        for claim in members:
            estimate = f"{number(claim.estimate)} {interval(claim.ci_low, claim.ci_high)}".rstrip()
            reason = f" {claim.note}" if claim.verdict == "not_run" else ""
            table.add_row(_verdict(claim), Text(estimate), Text(claim.statement).append(reason, style="dim"))
    return table


def _by_family(claims: Sequence[Claim]) -> Any:
    families = [*dict.fromkeys(claim.family for claim in claims)]
    return lambda claim: families.index(claim.family)


def _verdict(claim: Claim) -> Text:
    return Text(overview.verdict_words(claim), style=_VERDICT_STYLES[claim.verdict])


def show_checks(manifest: Mapping[str, Any]) -> None:
    """Prints every self-check: its outcome, what it compares, what was measured. Raises UserError if there is none."""
    rows = [*check_rows(manifest)]
    if not rows:
        raise UserError("the run has no self-checks; they come with `make speculate` and `make study`")
    table = report_table("Self-checks")
    for name in ("outcome", "check", "measured"):
        table.add_column(name)
    for row in rows:
        outcome = {None: "", True: "passed", False: "FAILED"}[row.passed]
        table.add_row(Text(outcome, style="bold red" if row.passed is False else "green"), row.meaning, row.measured)
    report_console().print(table)
