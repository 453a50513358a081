"""What keys are worth in a cache: acceptance and divergence against the share of the prompt's keys that is kept."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specstudy.analysis.join import Tables
from specstudy.analysis.measures import label, phrase
from specstudy.analysis.retention import ALL, FIRST, LAST, RANDOM
from specstudy.analysis.study import AnalysisResult
from specstudy.records import RetentionCost
from specstudy.report.figures.estimates import draw_estimates
from specstudy.report.style import INK, SERIES, bars_note, new_figure, wrapped

POLICY_WORDS = {
    ALL: "all",
    FIRST: "the first 4 and the last",
    RANDOM: "4 random and the last",
    LAST: "the last alone",
}
_ACCEPT, _KL = "mean_expected_accept", "mean_kl_bits"
_PANELS = (("draft", _ACCEPT, f"change of {phrase(_ACCEPT)}"), ("verifier", _KL, label(_KL)))
_SHIFT = 0.008


def retention_curves(result: AnalysisResult, tables: Tables) -> Figure | None:
    """What dropping keys changes, paired by prompt: the draft's acceptance beside the verifier's divergence, a line a
    policy; None unless keys were dropped."""
    rows = [row for row in result.retention if row.minus == ALL and row.estimate is not None]
    if not rows:
        return None
    figure = new_figure(8.6, 4.2)
    panels = figure.subplots(1, len(_PANELS))
    for axes, (model, measure, words) in zip(panels, _PANELS, strict=True):
        _draw(axes, [row for row in rows if (row.model, row.measure) == (model, measure)])
        axes.set(xlabel="share of the prompt's keys kept", ylabel=wrapped(words, 30))
        axes.set_title(f"dropped from the {model}'s cache alone")
    n = max(row.n for row in rows)
    note = f"n = {n} prompts; {bars_note(result.settings.confidence)}"
    figure.suptitle(note, x=0.01, ha="left", fontsize=9.5)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _draw(axes: Axes, rows: list[RetentionCost]) -> None:
    axes.axhline(0, color=INK, linewidth=0.9, linestyle="--", label="the whole cache")
    for place, policy in enumerate((FIRST, RANDOM, LAST)):
        own = sorted((row for row in rows if row.policy == policy), key=lambda row: row.budget)
        at = [row.budget + _SHIFT * (place - 1) for row in own]
        draw_estimates(axes, at, own, POLICY_WORDS[policy], SERIES[place])
    axes.set_xticks(sorted({row.budget for row in rows}))
