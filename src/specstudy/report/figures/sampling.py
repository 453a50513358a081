"""Acceptance by temperature and top_p of both models."""

from __future__ import annotations

from matplotlib.figure import Figure

from specstudy.analysis.join import Tables
from specstudy.analysis.measures import ACCEPTANCE_MEASURES, label
from specstudy.analysis.study import AnalysisResult
from specstudy.report.figures.estimates import draw_estimates
from specstudy.report.style import SERIES, new_figure, wrapped


def acceptance_by_sampling(result: AnalysisResult, tables: Tables) -> Figure | None:
    """The three acceptance numbers against temperature, a line a top_p; None unless the run samples in several ways."""
    cells = result.samplings
    if len(cells) < 2:
        return None
    temperatures = sorted({condition.temperature for condition in cells})
    figure = new_figure(10, 3.9)
    panels = figure.subplots(1, len(ACCEPTANCE_MEASURES), sharey=True)
    top_ps = sorted({condition.top_p for condition in cells})
    for axes, measure in zip(panels, ACCEPTANCE_MEASURES, strict=True):
        for place, top_p in enumerate(top_ps):
            conditions = [condition for condition in cells if condition.top_p == top_p]
            shift = 0.08 * (place - (len(top_ps) - 1) / 2)
            places = [temperatures.index(condition.temperature) + shift for condition in conditions]
            rows = [result.comparison.measures[condition, measure] for condition in conditions]
            draw_estimates(axes, places, rows, f"top_p {top_p:g}", SERIES[place % len(SERIES)])
        axes.set_xticks(range(len(temperatures)), [f"{temperature:g}" for temperature in temperatures])
        axes.set_xlabel("temperature")
        axes.set_title(wrapped(label(measure), 40))
    panels[0].set(ylabel="acceptance", ylim=(0, 1.02))
    n = max(result.comparison.measures[condition, "alpha"].n for condition in cells)
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        title=f"n = {n} prompts in each cell; bars: intervals over prompts",
        loc="outside lower center",
        ncols=len(top_ps),
    )
    return figure
