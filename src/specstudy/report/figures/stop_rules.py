"""Rules that end a draft early: what they change against drafts of fixed length, and the bound behind one of them."""

from __future__ import annotations

import math

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from specstudy.analysis.entropy_bound import COEFFICIENT, MIN_ENTROPY_NATS, lower_bound
from specstudy.analysis.join import Tables, decoded_tokens
from specstudy.analysis.measures import phrase
from specstudy.analysis.study import AnalysisResult
from specstudy.condition import Condition
from specstudy.records import EntropyBound
from specstudy.report.figures.estimates import draw_estimates
from specstudy.report.style import (
    INK,
    ORANGE,
    SERIES,
    VERMILLION,
    bars_note,
    interval,
    new_figure,
    number,
    percent,
    wrapped,
)

_PANELS = ("proposed_per_token", "untested_share", "tokens_per_round", "speedup")
# Light enough to tell many tokens from few, dark enough to see one.
_TOKENS = ListedColormap(colormaps["Blues"](np.linspace(0.3, 1.0, 256)))


def rule_differences(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Each rule minus a fixed gamma, prompt by prompt; None unless a run has both."""
    pairs = fixed_pairs(result)
    if not pairs:
        return None
    rules = list(dict.fromkeys(condition for condition, _ in pairs))
    references = sorted({reference.gamma for _, reference in pairs})
    figure = new_figure(9.6, 1.7 + 0.42 * len(rules) * max(1, len(references) / 2))
    panels = figure.subplots(1, len(_PANELS), sharey=True)
    for axes, measure in zip(panels, _PANELS, strict=True):
        axes.axvline(0, color=INK, linewidth=0.9, linestyle="--")
        for place, gamma in enumerate(references):
            own = [(condition, reference) for condition, reference in pairs if reference.gamma == gamma]
            shift = 0.24 * (place - (len(references) - 1) / 2)
            rows = [result.comparison.differences[*pair, measure] for pair in own]
            places = [rules.index(condition) + shift for condition, _ in own]
            draw_estimates(axes, places, rows, f"minus fixed gamma {gamma}", SERIES[place % len(SERIES)], sideways=True)
        axes.set_xlabel(wrapped(phrase(measure), 20))
    panels[0].set_yticks(range(len(rules)), [f"{condition.rule}, gamma {condition.gamma}" for condition in rules])
    panels[0].set_ylim(len(rules) - 0.4, -0.6)
    n = max(result.comparison.differences[*pair, "alpha"].n for pair in pairs)
    note = f"difference, prompt by prompt; n = {n} prompts; {bars_note(result.settings.confidence)}"
    figure.suptitle(note, x=0.01, ha="left", fontsize=9.5)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(references))
    return figure


def fixed_pairs(result: AnalysisResult) -> list[tuple[Condition, Condition]]:
    """Every (rule, fixed gamma) that the run can compare: a rule and the drafts that nothing stops."""
    pairs = dict.fromkeys((condition, reference) for condition, reference, _ in result.comparison.differences)
    return [(s, r) for s, r in pairs if s.stop != "none" and r.stop == "none"]


def entropy_bound(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Expected acceptance of each decoded token against the draft's entropy, with the bound at c and at c95."""
    rows = {row.measure: row for row in result.entropy_bounds if row.category == "all"}
    if not rows or rows["c95"].estimate is None:
        return None
    tokens = decoded_tokens(tables)[["draft_entropy_bits", "expected_accept"]].dropna()
    nats, accepted = tokens["draft_entropy_bits"].to_numpy() * math.log(2), tokens["expected_accept"].to_numpy()
    figure = new_figure(6.4, 4.6)
    axes = figure.subplots()
    cells = axes.hexbin(nats, accepted, gridsize=(44, 26), bins="log", mincnt=1, cmap=_TOKENS, linewidths=0.1)
    bar = figure.colorbar(cells, ax=axes, label="tokens (log scale)", format="%g")
    bar.minorticks_off()
    x = np.linspace(MIN_ENTROPY_NATS, float(nats.max()), 400)
    curves = ((COEFFICIENT, VERMILLION, "-", "c ="), (rows["c95"].estimate, ORANGE, "--", "c95 ="))
    for coefficient, color, dashes, words in curves:
        y = lower_bound(x, coefficient)
        label = f"1 \N{MINUS SIGN} √(c·H), {words} {coefficient:.3g}"
        axes.plot(x[y >= 0], y[y >= 0], color=color, linestyle=dashes, linewidth=2, label=label)
    axes.set(xlabel="draft entropy H (nats, temperature 1)", ylabel="expected acceptance", ylim=(-0.03, 1.03))
    brackets = f"in brackets: {percent(result.settings.confidence)} intervals over prompts"
    axes.set_title("\n".join([*(_found(row) for row in rows.values()), brackets]))
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _found(row: EntropyBound) -> str:
    words = f"below the bound with c = {row.coefficient}" if row.measure == "violated_share" else row.measure
    return f"{words}: {number(row.estimate, 3)} {interval(row.ci_low, row.ci_high, 3)}, n = {row.n} tokens"
