"""The entropy of one answer, token by token."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specstudy.analysis.join import Tables, frame_of, numbers
from specstudy.analysis.measures import ENTROPY_MEASURE
from specstudy.analysis.study import AnalysisResult
from specstudy.report.style import BLUE, VERMILLION, new_figure, visible_token

_TOKENS_A_ROW = 44
_ROWS = 3
_LONGEST_TOKEN = 12


def entropy_trace(result: AnalysisResult, tables: Tables) -> Figure | None:
    """Verifier and draft entropy along the answer of the prompt with the median mean entropy, its tokens below."""
    prompt_id = typical_prompt(result.prompts)
    if prompt_id is None:
        return None
    tokens = frame_of(tables, "decode_tokens")
    tokens = tokens[(tokens["prompt_id"] == prompt_id) & (tokens["repetition"] == 0)].sort_values("step")
    tokens = tokens.head(_TOKENS_A_ROW * _ROWS)
    n_rows = -(-len(tokens) // _TOKENS_A_ROW)
    per_row = -(-len(tokens) // n_rows)
    figure = new_figure(9.6, 0.8 + 1.75 * n_rows)
    top = np.nanmax([numbers(tokens[name]).max(initial=0.1) for name in ("entropy_bits", "draft_entropy_bits")])
    panels = figure.subplots(n_rows, 1, squeeze=False)[:, 0]
    for i, axes in enumerate(panels):
        _row(axes, tokens.iloc[i * per_row : (i + 1) * per_row], range(i * per_row, (i + 1) * per_row), float(top))
    panels[0].set_title(f"{prompt_id}: first {len(tokens)} tokens of the answer")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def typical_prompt(prompts: pd.DataFrame) -> str | None:
    """The prompt whose mean entropy is the (lower) median; None if no prompt has one."""
    ordered = prompts[ENTROPY_MEASURE].dropna().sort_values(kind="stable")
    return None if ordered.empty else str(ordered.index[(len(ordered) - 1) // 2])


def _row(axes: Axes, tokens: pd.DataFrame, span: range, top: float) -> None:
    places = np.array(span[: len(tokens)])
    draft = numbers(tokens["draft_entropy_bits"])
    axes.bar(places, numbers(tokens["entropy_bits"]), width=0.75, color=BLUE, label="verifier")
    if np.isfinite(draft).any():
        axes.plot(places, draft, "_", color=VERMILLION, markersize=7, markeredgewidth=2, label="draft, same text")
    texts = [visible_token(token)[:_LONGEST_TOKEN] for token in tokens["token"]]
    axes.set_xticks(places, texts, rotation=90, fontsize=7)
    axes.set_xlim(span.start - 0.7, span.stop - 0.3)
    axes.set_ylim(0, 1.05 * top)
    axes.set_ylabel("entropy (bits)")
    axes.grid(axis="x", visible=False)
