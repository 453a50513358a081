"""Acceptance against the draft's entropy and against the place in the round."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specstudy.analysis.join import Tables
from specstudy.analysis.study import AnalysisResult
from specstudy.records import Correlation
from specstudy.report.style import BLUE, SERIES, VERMILLION, bars_note, interval, new_figure, number

_SOURCES = {
    "decoded": ("expected acceptance, every token of the verifier's answer", BLUE, "o"),
    "tested": ("accepted share of tested draft tokens", VERMILLION, "D"),
}


def by_draft_entropy(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Acceptance in bins of draft entropy, on the decoded text and in the rounds."""
    if result.by_draft_entropy.empty:
        return None
    figure = new_figure()
    axes = figure.subplots()
    for source, rows in result.by_draft_entropy.groupby("source", sort=False):
        words, color, marker = _SOURCES[str(source)]
        _line(axes, rows, "draft_entropy_bits", color, marker, f"{words} (n = {rows['n'].sum()})")
    axes.set(xlabel="draft entropy (bits), mean of the bin", ylabel="acceptance", ylim=(0, 1.02))
    titles = [
        _title("decoded", result.find("token", "within_prompt", "draft_entropy_bits", "expected_accept")),
        _title(
            "tested",
            result.find("token", "within_prompt", "draft_entropy_bits", result.at("accepted")),
        ),
    ]
    axes.set_title("\n".join(filter(None, [*titles, bars_note(result.settings.confidence)])))
    figure.legend(loc="outside lower center")
    return figure


def _title(source: str, record: Correlation | None) -> str:
    if record is None or record.estimate is None:
        return ""
    bounds = interval(record.ci_low, record.ci_high)
    return f"Spearman inside a prompt, {source}: {number(record.estimate)} {bounds}, n = {record.n} prompts"


def by_round_index(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Share of tested tokens accepted at each place in the round, one line a condition."""
    frame = result.by_round_index
    if frame.empty:
        return None
    figure = new_figure(6.4, 3.8)
    axes = figure.subplots()
    for i, (condition, rows) in enumerate(frame.groupby("condition", sort=False)):
        shifted = rows.assign(place=rows["index"] + 1 + 0.04 * i)
        _line(axes, shifted, "place", *SERIES[i % len(SERIES)], f"{condition} (n = {rows['n'].sum()})")
    last = int(frame["index"].max()) + 1
    axes.set_xticks(range(1, last + 1))
    axes.set_title(bars_note(result.settings.confidence))
    axes.set(xlabel="place of the drafted token in its round", ylabel="accepted / tested", ylim=(0, 1.02))
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def _line(axes: Axes, rows: pd.DataFrame, x: str, color: str, marker: str, words: str) -> None:
    axes.plot(rows[x], rows["value"], color=color, marker=marker, markersize=5, linewidth=1.4, label=words)
    axes.vlines(rows[x], rows["low"], rows["high"], color=color, linewidth=1.4)
