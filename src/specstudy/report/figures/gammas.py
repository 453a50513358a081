"""Gammas side by side: tokens a round against what alpha predicts, and the alpha from which drafting pays."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from specstudy.analysis.join import Tables
from specstudy.analysis.measures import label
from specstudy.analysis.study import AnalysisResult
from specstudy.report.figures.estimates import draw_estimates
from specstudy.report.style import look, new_figure


def tokens_by_gamma(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Tokens a round, measured and by the formula from alpha; None unless several gammas were measured."""
    return _by_gamma(result, ("tokens_per_round", "tokens_per_round_expected"), label("tokens_per_round"))


def breakeven_by_gamma(result: AnalysisResult, tables: Tables) -> Figure | None:
    """The alpha at which the expected speedup is 1, by three ideas of cost, against alpha as measured."""
    breakeven = ("breakeven_alpha_flops", "breakeven_alpha_time", "breakeven_alpha_full")
    figure = _by_gamma(result, ("alpha", *breakeven), label("alpha"))
    if figure is not None:
        figure.axes[0].set_ylim(0, 1.02)
    return figure


def _by_gamma(result: AnalysisResult, lines: Sequence[str], ylabel: str) -> Figure | None:
    settings, measures = result.gammas, result.comparison.measures
    if len(settings) < 2:
        return None
    figure = new_figure(6.4, 4.2)
    axes = figure.subplots()
    for place, measure in enumerate(lines):
        shift = 0.04 * (place - (len(lines) - 1) / 2)
        rows = [measures[setting, measure] for setting in settings]
        draw_estimates(axes, [setting.gamma + shift for setting in settings], rows, label(measure), look(measure))
    axes.set_xticks([setting.gamma for setting in settings])
    n = max(measures[setting, "alpha"].n for setting in settings)
    axes.set(xlabel=f"gamma (tokens proposed in a full round); n = {n} prompts", ylabel=ylabel)
    figure.legend(loc="outside lower center", ncols=2 if len(lines) > 2 else 1)
    return figure
