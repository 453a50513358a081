"""The joint report of a sweep: a table in the terminal, and measures drawn against the setting that varies."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter
from rich.text import Text

from specstudy.analysis.measures import ACCEPTANCE_MEASURES, ENTROPY_MEASURE, is_timed, label, short
from specstudy.analysis.sweep import ENTROPY_LINK, Sweep
from specstudy.report.console import report_console, report_table
from specstudy.report.style import (
    INK,
    SERIES,
    figure_style,
    interval,
    look,
    new_figure,
    number,
    save,
    wrapped,
)

# What a narrow terminal holds; the table on disk has every measure.
_SHOWN = ("mean_entropy_bits", "acceptance_rate", "alpha_expected", "speedup")
_SHOWN_OF_DRAFTS = ("alpha_expected", "speedup", ENTROPY_LINK)


def print_sweep(sweep: Sweep, files: list[Path]) -> None:
    """Prints a row a point, each measure with its interval over prompts, and where the files are."""
    table = report_table("The sweep")
    for key in sweep.keys:
        table.add_column(Text(key), overflow="fold", min_width=min(len(key), 12))
    if sweep.draft_amount:
        table.add_column(f"layers,\n{sweep.draft_amount.rpartition('_')[2]}", justify="right", no_wrap=True)
    table.add_column("n", justify="right", min_width=2)
    shown = _SHOWN_OF_DRAFTS if sweep.draft_amount else _SHOWN
    for measure in shown:
        table.add_column(wrapped(short(measure), 10), justify="right", no_wrap=True)
    for _, row in sweep.rows.iterrows():
        failed = f"\n({row['n_errors']})" if row["n_errors"] else ""
        keys = [_key_cell(row[key]) for key in sweep.keys]
        if sweep.draft_amount:
            keys.append(Text(f"{row['draft_n_layers']:.0f}\n{row[sweep.draft_amount]:,.0f}"))
        table.add_row(*keys, f"{row['n_prompts']}{failed}", *(_measure_cell(row, measure) for measure in shown))
    console = report_console()
    console.print()
    console.print(table)
    if sweep.rows["n_errors"].any():
        console.print("(in brackets: measurements that failed)")
    if n_busy := int((sweep.rows["busy"] != "").sum()):
        console.print(f"(*: the machine was busy at {n_busy} of {len(sweep.rows)} points; their speeds tell nothing)")
    for file in files:
        console.print(Text(str(file), overflow="fold"))


def _key_cell(value: object) -> Text:
    return Text(f"{value:g}" if isinstance(value, float) else str(value))


def _measure_cell(row: pd.Series, measure: str) -> Text:
    bounds = interval(row[f"{measure}_low"], row[f"{measure}_high"])
    mark = "*" if row["busy"] and is_timed(measure) else ""
    return Text(f"{number(row[measure])}{mark}\n{bounds}".rstrip())


def draw_sweep(sweep: Sweep, directory: Path) -> list[Path]:
    """Entropy, acceptance and speedup against the one numeric setting that varies, or acceptance, speedup and the
    entropy link against how drafts were distilled, as PNG and SVG; else nothing."""
    key, amount = sweep.numeric_key, sweep.draft_amount
    if key is None and amount is None:
        return []
    with figure_style():
        if key is not None:
            return save(_figure(sweep.rows.sort_values(key), key), directory, "sweep")
        assert amount is not None
        return save(_draft_figure(sweep.rows.sort_values(amount), amount), directory, "draft_depth")


def _figure(rows: pd.DataFrame, key: str) -> Figure:
    figure = new_figure(10, 3.6)
    entropy, acceptance, speedup = figure.subplots(1, 3)
    _line(entropy, rows, key, ENTROPY_MEASURE)
    entropy.set_ylabel(label(ENTROPY_MEASURE))
    step = (rows[key].max() - rows[key].min()) / 100
    for place, measure in enumerate(ACCEPTANCE_MEASURES):
        _line(acceptance, rows, key, measure, shift=(place - 1) * step)
    acceptance.set(ylabel="acceptance", ylim=(0, 1))
    _line(speedup, rows, key, "speedup")
    speedup.axhline(1, color=INK, linewidth=0.9, linestyle="--")
    speedup.set_ylabel(wrapped(label("speedup"), 40))
    for axes in (entropy, acceptance, speedup):
        axes.set_xlabel(key)
        if len(rows) <= 10:
            axes.set_xticks(rows[key], [f"{value:g}" for value in rows[key]])
    sizes = dict.fromkeys([rows["n_prompts"].min(), rows["n_prompts"].max()])
    entropy.set_title(f"n = {' to '.join(map(str, sizes))} prompts a point; bars: intervals over prompts")
    figure.legend(*acceptance.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


_AMOUNTS = {"draft_n_training_tokens": "tokens distilled on", "draft_n_training_answers": "answers distilled on"}
_APART = 1.05
"""Factor between drafts of other depths at the same amount, so that none hides another."""


def _draft_figure(rows: pd.DataFrame, amount: str) -> Figure:
    """A line a number of layers."""
    figure = new_figure(10, 3.7)
    panels = figure.subplots(1, len(_SHOWN_OF_DRAFTS))
    layers = sorted(rows["draft_n_layers"].unique())
    for axes, measure in zip(panels, _SHOWN_OF_DRAFTS, strict=True):
        for place, n_layers in enumerate(layers):
            own = rows[rows["draft_n_layers"] == n_layers]
            color, marker = SERIES[place % len(SERIES)]
            named = f"{n_layers:g} layer" + ("" if n_layers == 1 else "s")
            at = own[amount] * _APART**place
            axes.plot(at, own[measure], color=color, marker=marker, markersize=5, linewidth=1.4, label=named)
            axes.vlines(at, own[f"{measure}_low"], own[f"{measure}_high"], color=color, linewidth=1.6)
        axes.set(xscale="log", xlabel=_AMOUNTS[amount], ylabel=wrapped(label(measure), 40))
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(EngFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
    panels[1].axhline(1, color=INK, linewidth=0.9, linestyle="--")
    panels[2].axhline(0, color=INK, linewidth=0.9, linestyle="--")
    n = int(rows["n_prompts"].max())
    panels[0].set_title(f"n = {n} prompts a point; bars: intervals over prompts")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(layers))
    return figure


def _line(axes: Axes, rows: pd.DataFrame, key: str, measure: str, shift: float = 0.0) -> None:
    color, marker = look(measure)
    x = rows[key] + shift
    axes.plot(x, rows[measure], label=label(measure), color=color, marker=marker, markersize=5, linewidth=1.4)
    axes.vlines(x, rows[f"{measure}_low"], rows[f"{measure}_high"], color=color, linewidth=1.6)
