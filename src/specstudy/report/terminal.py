"""What was found, on one screen: the summary of a study, and one prompt drawn in colour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from specstudy.analysis.join import Tables, conditions_measured, frame_of
from specstudy.analysis.measures import condition_name, condition_suffixes, primary_condition, short
from specstudy.analysis.study import AnalysisResult
from specstudy.condition import STUDY_CONDITION, Condition
from specstudy.report.checks import checks_sentence
from specstudy.report.console import print_marked, report_console, report_table
from specstudy.report.narrative import overview
from specstudy.report.narrative.findings import findings
from specstudy.report.narrative.machine import load_sentence, machine_sentences
from specstudy.report.prompt_terminal import draw_prompt
from specstudy.report.prompt_view import PromptViews
from specstudy.report.style import number

CATEGORIES_SHOWN = 8


def summary(result: AnalysisResult, tables: Tables, manifest: Mapping[str, Any], run_dir: Path) -> None:
    """Prints what the study found and where its files are, within 45 lines of 100 columns; the rest is a command away.

    Plain text of 100 columns where it is not a terminal.
    """
    console = report_console()
    console.print()
    _print_alarm(manifest, console)
    console.print(Text(overview.models_sentence(manifest) or "specstudy", style="bold"))
    console.print(Text(checks_sentence(manifest)))
    console.print()
    for sentence in (*findings(result), overview.chain_sentence(result)):
        print_marked(console, sentence)
    console.print()
    console.print(_means(result))
    for sentence in _speed_and_claims(result, tables):
        console.print(Text(sentence))
    for name, where in _files_and_next(result, run_dir):
        print_marked(console, where, f"{name:<6}")
    _print_alarm(manifest, console)


def _print_alarm(manifest: Mapping[str, Any], console: Console) -> None:
    if alarm := overview.alarm(manifest):
        console.print(Panel(Text(alarm, style="bold"), style="bold white on red", box=box.HEAVY))


def _speed_and_claims(result: AnalysisResult, tables: Tables) -> Iterator[str]:
    yield overview.speed_sentence(result)
    yield from machine_sentences(result) or filter(None, [load_sentence(result)])
    if not frame_of(tables, "errors").empty:
        yield overview.failures_sentence(tables)
    yield f"{overview.claims_sentence(result)} `make show claims` lists them."
    if seen := overview.seen_sentence(result):
        yield seen


def _files_and_next(result: AnalysisResult, run_dir: Path) -> Iterator[tuple[str, str]]:
    yield "report", str(run_dir / "report.html")
    yield "tables", f"{run_dir / 'tables'}, and figures beside them"
    if len(result.prompts):
        yield "next", f"make show id={result.prompts.index[0]}"


def show_prompt(tables: Tables, prompt_id: str, wanted: Condition = STUDY_CONDITION) -> None:
    """Prints one prompt: its tokens with sinks, the answer by entropy, the rounds (at `wanted`), and a summary.

    Raises UserError, naming near ids, for a prompt that the run does not hold.
    """
    suffixes = condition_suffixes(conditions_measured(tables))
    condition = primary_condition(list(suffixes), wanted)
    view = PromptViews(tables, condition).view(prompt_id)
    draw_prompt(view, condition_name(condition, suffixes) if condition else "", report_console())


def _means(result: AnalysisResult) -> Table:
    table = report_table("Averages by category (of speedups medians, else means)")
    # Speed by steps stands in the sentence on speed.
    measures = {
        words: key for words, key in overview.summary_measures(result).items() if words != short("speedup_steps")
    }
    table.add_column("category", no_wrap=True, overflow="ellipsis", max_width=16)
    table.add_column("n", justify="right")
    for name in measures:
        table.add_column(name, justify="right")
    sizes = result.prompts["category"].value_counts()
    for category in [*sorted(sizes.index)[:CATEGORIES_SHOWN], "all"]:
        rows = [overview.mean_row(result, measure, category) for measure in measures.values()]
        cells = [number(None if row is None else row["value"]) for row in rows]
        n = len(result.prompts) if category == "all" else sizes[category]
        table.add_row(Text(category), str(n), *cells, style="bold" if category == "all" else "")
    if len(sizes) > CATEGORIES_SHOWN:
        table.caption = f"and {len(sizes) - CATEGORIES_SHOWN} more categories in the report"
        table.caption_justify = "left"
    return table
