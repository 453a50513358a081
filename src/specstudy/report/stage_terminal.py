"""What a single stage found, in a few lines, where it is, and what comes next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pandas as pd

from specstudy.analysis.join import Tables, conditions_measured, frame_of, of_condition
from specstudy.analysis.measures import condition_name, condition_suffixes, is_timed, phrase
from specstudy.report.console import print_marked, report_console
from specstudy.report.narrative.overview import failures_sentence
from specstudy.report.style import number

CONDITIONS_SHOWN = 8


def stage_summary(stage: str, next_step: str, tables: Tables, run_dir: Path) -> None:
    """Prints what `prefill`, `decode` or `speculate` found. Plain text where it is not a terminal."""
    console = report_console()
    for sentence in _FOUND[stage](tables):
        print_marked(console, sentence)
    if not frame_of(tables, "errors").empty:
        print_marked(console, failures_sentence(tables))
    print_marked(console, str(run_dir / "tables"), "tables")
    print_marked(console, next_step, "next  ")


def _prefill(tables: Tables) -> Iterator[str]:
    prompts, tokens = frame_of(tables, "prefill_prompts"), frame_of(tables, "prefill_tokens")
    sinks = tokens[tokens["is_sink"].astype(bool)]
    first = int((sinks["position"] == 0).sum())
    content = sinks[~sinks["is_structural"].astype(bool)]
    yield f"{len(prompts)} prompts of {_range(prompts['n_tokens'], 0)} tokens."
    yield (
        f"Sinks: position 0 in {first} of {len(prompts)} prompts, {len(content)} content tokens in "
        f"{content['prompt_id'].nunique()} prompts."
    )
    yield _average(prompts, "context_health_soft")


def _decode(tables: Tables) -> Iterator[str]:
    runs = frame_of(tables, "decode_runs")
    yield f"{len(runs)} answers to {runs['prompt_id'].nunique()} prompts, of {_range(runs['n_tokens'], 0)} tokens."
    for measure in ("mean_entropy_bits", "mean_draft_entropy_bits", "mean_expected_accept"):
        yield _average(runs, measure)


def _speculate(tables: Tables) -> Iterator[str]:
    suffixes = condition_suffixes(conditions_measured(tables))
    runs = frame_of(tables, "spec_runs")
    yield f"{len(runs)} speculative answers to {runs['prompt_id'].nunique()} prompts."
    for condition in sorted(suffixes)[:CONDITIONS_SHOWN]:
        own = of_condition(runs, condition)
        told = (_average(own, measure) for measure in ("alpha_expected", "tokens_per_round", "speedup"))
        yield f"{condition_name(condition, suffixes)}: {' '.join(told)}"
    if len(suffixes) > CONDITIONS_SHOWN:
        yield f"and {len(suffixes) - CONDITIONS_SHOWN} more conditions."


_FOUND: Mapping[str, Callable[[Tables], Iterator[str]]] = {
    "prefill": _prefill,
    "decode": _decode,
    "speculate": _speculate,
}


def _average(rows: pd.DataFrame, measure: str) -> str:
    """The average of a measure over prompts, as it is told everywhere: median of speeds, else mean."""
    by_prompt = rows.groupby("prompt_id")[measure].mean().dropna()
    if by_prompt.empty:
        return f"No {phrase(measure)}."
    name, value = ("median", by_prompt.median()) if is_timed(measure) else ("mean", by_prompt.mean())
    of = phrase(measure).removeprefix("mean ")
    return f"{name.capitalize()} {of} over prompts {number(value)} ({_range(by_prompt)})."


def _range(values: pd.Series, digits: int = 2) -> str:
    low, high = number(values.min(), digits), number(values.max(), digits)
    return low if low == high else f"{low} to {high}"
