"""Gammas side by side: acceptance, tokens a round, speedup, and the alpha from which drafting pays."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from specstudy.analysis.join import Tables
from specstudy.analysis.measures import ACCEPTANCE_MEASURES, THEORIES, label
from specstudy.analysis.study import AnalysisResult
from specstudy.report.figures.estimates import draw_estimates
from specstudy.report.style import INK, bars_note, look, new_figure


def acceptance_by_gamma(result: AnalysisResult, tables: Tables) -> Figure | None:
    """The three acceptance numbers; None, as of all these figures, unless several gammas were measured."""
    return _by_gamma(result, ACCEPTANCE_MEASURES, "acceptance", is_share=True)


def tokens_by_gamma(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Tokens a round, measured and by the formula from alpha."""
    return _by_gamma(result, ("tokens_per_round", "tokens_per_round_expected"), label("tokens_per_round"))


def speedup_by_gamma(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Measured speedup and what each theory says."""
    figure = _by_gamma(result, ("speedup", "speedup_steps", *THEORIES), "speedup (times the verifier alone)")
    if figure is not None:
        figure.axes[0].axhline(1, color=INK, linewidth=0.9, linestyle="--")
    return figure


def breakeven_by_gamma(result: AnalysisResult, tables: Tables) -> Figure | None:
    """The alpha at which the expected speedup is 1, by three ideas of cost, against alpha as measured."""
    breakeven = ("breakeven_alpha_flops", "breakeven_alpha_time", "breakeven_alpha_full")
    return _by_gamma(result, ("alpha", *breakeven), label("alpha"), is_share=True)


def _by_gamma(result: AnalysisResult, lines: Sequence[str], ylabel: str, is_share: bool = False) -> Figure | None:
    conditions, measures = result.gammas, result.comparison.measures
    if len(conditions) < 2:
        return None
    figure = new_figure(6.4, 4.4)
    axes = figure.subplots()
    for place, measure in enumerate(lines):
        shift = 0.04 * (place - (len(lines) - 1) / 2)
        rows = [measures[condition, measure] for condition in conditions]
        draw_estimates(axes, [condition.gamma + shift for condition in conditions], rows, label(measure), look(measure))
    axes.set_xticks([condition.gamma for condition in conditions])
    n = max(measures[condition, "alpha"].n for condition in conditions)
    axes.set(xlabel="gamma (tokens proposed in a full round)", ylabel=ylabel)
    axes.set_title(f"n = {n} prompts; {bars_note(result.settings.confidence)}")
    if is_share:
        axes.set_ylim(0, 1.02)
    figure.legend(loc="outside lower center")
    return figure
