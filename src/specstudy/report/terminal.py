"""What was found, in the terminal: the summary of a study, and one prompt drawn in colour."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from specstudy.analysis.join import Tables, conditions_measured
from specstudy.analysis.measures import condition_name, condition_suffixes, primary_condition, short
from specstudy.analysis.study import AnalysisResult
from specstudy.condition import STUDY_CONDITION, Condition
from specstudy.records import Claim
from specstudy.report.checks import CheckRow, check_rows
from specstudy.report.console import report_console, report_table
from specstudy.report.narrative import overview
from specstudy.report.narrative.machine import machine_sentences
from specstudy.report.narrative.routing import experts_sentence
from specstudy.report.prompt_terminal import draw_prompt
from specstudy.report.prompt_view import PromptViews
from specstudy.report.style import interval, number

_VERDICT_STYLES = {"supported": "green", "contradicted": "red", "undecided": "yellow", "not_run": "dim"}


def summary(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any], run_dir: Path) -> None:
    """Prints what the study found and where its files are; plain text of 80 columns where it is not a terminal."""
    console = report_console()
    console.print()
    _print_alarm(manifest, console)
    console.print(Text(overview.models_sentence(manifest) or "specstudy", style="bold"))
    console.print(Text(overview.chain_sentence(result)))
    console.print(_links(result))
    for sentence in _findings(result, tables):
        console.print(Text(sentence))
    console.print()
    console.print(_means(result))
    console.print(_claims(result))
    if seen := overview.seen_sentence(result):
        console.print(Text(seen))
    if checks := list(check_rows(manifest)):
        console.print(_checks(checks))
    console.print(_files(run_dir))
    _print_alarm(manifest, console)


def _print_alarm(manifest: Mapping[str, Any], console: Console) -> None:
    if alarm := overview.alarm(manifest):
        console.print(Panel(Text(alarm, style="bold"), style="bold white on red", box=box.HEAVY))


def _checks(rows: list[CheckRow]) -> Table:
    table = report_table("Self-checks")
    for name in ("outcome", "check", "measured"):
        table.add_column(name)
    for row in rows:
        outcome = {None: "", True: "passed", False: "FAILED"}[row.passed]
        table.add_row(Text(outcome, style="bold red" if row.passed is False else "green"), row.meaning, row.measured)
    return table


def _findings(result: AnalysisResult, tables: Tables) -> list[str]:
    sentences = [
        overview.speed_sentence(result),
        *machine_sentences(result),
        experts_sentence(result),
        overview.reliability_sentence(result),
    ]
    sentences += [
        overview.repetitive_sentence(result),
        *overview.constant_measures(result),
        overview.failures_sentence(tables),
    ]
    return [sentence for sentence in sentences if sentence]


def show_prompt(tables: Tables, prompt_id: str, wanted: Condition = STUDY_CONDITION) -> None:
    """Prints one prompt: its tokens with sinks, the answer by entropy, the rounds (at `wanted`), and a summary.

    Raises UserError, naming near ids, for a prompt that the run does not hold.
    """
    suffixes = condition_suffixes(conditions_measured(tables))
    condition = primary_condition(list(suffixes), wanted)
    view = PromptViews(tables, condition).view(prompt_id)
    draw_prompt(view, condition_name(condition, suffixes) if condition else "", report_console())


def _links(result: AnalysisResult) -> Table:
    """The links of the chain: verdict, the adjusted correlation that it rests on, the unadjusted one, ceiling."""
    table = report_table("The chain (Spearman over prompts; adjusted: category, length, surprisal)")
    table.add_column("link", max_width=14)
    table.add_column("verdict", max_width=12)
    for name in ("n", "adjusted", "unadjusted", "noise\nceiling"):
        table.add_column(name, justify="right", no_wrap=True)
    for declared, claim in zip(result.declarations, result.claims, strict=True):
        if not declared.link:
            continue
        observed = result.chain_correlation(declared, "all")
        limit = result.ceiling(declared)
        table.add_row(
            declared.link,
            _verdict(claim),
            str(claim.n),
            f"{number(claim.estimate)}\n{interval(claim.ci_low, claim.ci_high)}",
            f"{number(observed.estimate)}\n{interval(observed.ci_low, observed.ci_high)}" if observed else "",
            number(limit),
        )
    return table


def _means(result: AnalysisResult) -> Table:
    table = report_table("Averages by category (of speedups medians, else means)")
    # Speed by steps stands in the sentence on speed: the table fits 80 columns without it.
    measures = {
        words: key for words, key in overview.summary_measures(result).items() if words != short("speedup_steps")
    }
    table.add_column("category", no_wrap=True, overflow="ellipsis", max_width=16)
    table.add_column("n", justify="right")
    for name in measures:
        table.add_column(name, justify="right")
    sizes = result.prompts["category"].value_counts()
    for category in [*sorted(sizes.index), "all"]:
        rows = [overview.mean_row(result, measure, category) for measure in measures.values()]
        cells = [number(None if row is None else row["value"]) for row in rows]
        n = len(result.prompts) if category == "all" else sizes[category]
        table.add_row(Text(category), str(n), *cells, style="bold" if category == "all" else "")
    return table


def _claims(result: AnalysisResult) -> Table:
    table = report_table("Claims")
    table.add_column("verdict", no_wrap=True)
    table.add_column("estimate", justify="right", no_wrap=True)
    table.add_column("claim")
    for claim in result.claims:
        estimate = Text(f"{number(claim.estimate)} {interval(claim.ci_low, claim.ci_high)}")
        reason = Text(f"\n{claim.note}", style="dim") if claim.verdict == "not_run" else Text()
        table.add_row(_verdict(claim), estimate, Text(claim.statement).append(reason))
    return table


def _verdict(claim: Claim) -> Text:
    return Text(overview.verdict_words(claim), style=_VERDICT_STYLES[claim.verdict])


def _files(run_dir: Path) -> Panel:
    lines = [("report", run_dir / "report.html"), ("figures", run_dir / "figures"), ("tables", run_dir / "tables")]
    return Panel(
        Group(*(Text(f"{name:<8} {path}", overflow="fold") for name, path in lines)),
        title="files",
        title_align="left",
        box=box.SQUARE,
    )
