"""Two runs side by side in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specstudy.analysis.compare import OTHER_MACHINE, Comparison, Side
from specstudy.analysis.measures import short
from specstudy.report.console import report_console, report_table
from specstudy.report.narrative.overview import VERDICTS, alarm
from specstudy.report.style import NONE, interval, number, percent, visible_token
from specstudy.tables import manifest
from specstudy.tables.differences import override_text

_HASH_LENGTH, _HASH_SHOWN = 64, 12


def print_comparison(comparison: Comparison, a: Side, b: Side) -> None:
    """Prints what two runs differ in; plain text of 100 columns where it is not a terminal."""
    console = report_console()
    console.print()
    for name, side in (("a", a), ("b", b)):
        console.print(Text(f"{name}  {side.name}  {_state(side.manifest)}", overflow="fold"))
    _print_values(console, "Configuration", "Both have the same configuration.", comparison.config)
    same = "Both have the same models, prompts, device, dtype, threads, code and packages."
    _print_values(console, "Models, prompts and machine", same, comparison.provenance)
    console.print()
    console.print(Text(_prompts_sentence(comparison)))
    _print_measures(console, comparison)
    _print_claims(console, comparison, a, b)
    if len(comparison.tokens):
        console.print()
        console.print(_token_table(comparison.tokens))


def _state(written: Mapping[str, Any]) -> str:
    started = str(written.get("time", {}).get("start") or "")[:16].replace("T", " ")
    notes = [started, "" if manifest.is_finished(written) else "not finished", alarm(written)]
    return ", ".join(filter(None, notes))


def _print_values(console: Console, title: str, same: str, values: Mapping[str, tuple[object, object]]) -> None:
    console.print()
    if not values:
        console.print(Text(same))
        return
    table = report_table(title)
    for name in ("", "a", "b"):
        table.add_column(name, overflow="fold")
    for key, (a, b) in values.items():
        table.add_row(Text(key), Text(_shown(a)), Text(_shown(b)))
    console.print(table)


def _shown(value: object) -> str:
    """A value as in an override; none as a dash, a content hash by its first digits."""
    text = NONE if value is None else override_text(value)
    is_hash = len(text) == _HASH_LENGTH and not set(text) - set("0123456789abcdef")
    return text[:_HASH_SHOWN] if is_hash else text


def _prompts_sentence(comparison: Comparison) -> str:
    alone = [(side, ids) for side, ids in (("a", comparison.only_in_a), ("b", comparison.only_in_b)) if ids]
    rest = "".join(f"; {len(ids)} only in {side} (the first {ids[0]})" for side, ids in alone)
    return f"Prompts in both runs: {comparison.n_common}{rest}."


def _print_measures(console: Console, comparison: Comparison) -> None:
    coverage = percent(comparison.settings.confidence)
    for condition, rows in comparison.measures.groupby("condition", sort=False):
        console.print()
        title = str(condition) or "Prompts and answers of the verifier alone"
        console.print(_measure_table(title, rows, coverage))
    console.print(
        Text(
            "b − a: mean difference (of speeds the median one) over the n prompts that have both; bootstrap intervals "
            "by prompt."
        )
    )
    for why in comparison.machine:
        console.print(Text(f"Speeds are not compared: {why}.", style="bold yellow"))
    for side, conditions in comparison.unpaired.items():
        if conditions:
            console.print(Text(f"Only in {side}, not compared: {'; '.join(conditions)}."))


def _measure_table(title: str, rows: pd.DataFrame, coverage: str) -> Table:
    table = report_table(title)
    table.add_column("", width=20)
    for name in ("a", "b", "b − a"):
        table.add_column(name, justify="right", no_wrap=True, min_width=6)
    table.add_column(f"{coverage} interval", justify="right", no_wrap=True, min_width=16)
    table.add_column("n", justify="right", no_wrap=True)
    for _, row in rows.iterrows():
        digits = 1 if max(row["a"], row["b"]) >= 10 else 3
        values = (number(row[column], digits) for column in ("a", "b", "value"))
        other = row["null_reason"] == OTHER_MACHINE
        without = "not compared" if other else "the same in all" if row["n"] >= 3 else ""
        bounds = interval(row["low"], row["high"], digits) or without
        table.add_row(short(row["measure"]), *values, bounds, str(row["n"]))
    return table


def _print_claims(console: Console, comparison: Comparison, a: Side, b: Side) -> None:
    console.print()
    if comparison.claims is None:
        missing = " and ".join(name for name, side in (("a", a), ("b", b)) if "claims" not in side.tables)
        console.print(Text(f"Claims were not answered in {missing}; `make analyze` answers them."))
        return
    if comparison.claims.empty:
        console.print(Text("No claim changed its verdict."))
        return
    table = report_table("Claims that changed their verdict")
    table.add_column("claim")
    for side in ("a", "b"):
        table.add_column(side, no_wrap=True)
    for _, row in comparison.claims.iterrows():
        table.add_row(Text(row["statement"]), *(_answer(row, side) for side in ("a", "b")))
    console.print(table)


def _answer(row: pd.Series, side: str) -> str:
    verdict, value, low, high = (row[f"{name}_{side}"] for name in ("verdict", "estimate", "ci_low", "ci_high"))
    if verdict is None:
        return "not declared"
    return f"{VERDICTS[verdict]}\n{number(value)} {interval(low, high)}".rstrip()


def _token_table(tokens: pd.DataFrame) -> Table:
    table = report_table("Token ids")
    table.add_column("", overflow="fold")
    table.add_column("same in", no_wrap=True)
    table.add_column("first difference", overflow="fold")
    for _, row in tokens.iterrows():
        words = f"{row['n_equal']} of {row['n_prompts']} prompts"
        table.add_row(Text(row["sequence"]), words, Text(_difference(row)))
    return table


def _difference(row: pd.Series) -> str:
    if row["n_equal"] == row["n_prompts"]:
        return ""
    repetition = f", repetition {row['repetition']}" if row["repetition"] else ""
    a, b = (_token(row[f"id_{side}"], row[f"token_{side}"]) for side in ("a", "b"))
    return f"{row['prompt_id']}{repetition}, {row['place']}: {a} in a, {b} in b"


def _token(token_id: int | None, text: str) -> str:
    return "none" if token_id is None else f"{visible_token(text)} ({token_id})"
