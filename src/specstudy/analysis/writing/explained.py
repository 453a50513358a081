"""How much of what happens within an answer attention explains, on prompts that the fit has not seen.

All columns have their answer's mean taken off, so that nothing between answers or prompts takes part. What is held
enters with its square root and its square beside it: attention must not be paid for a curve. Regressions are ridge
regressions on columns scaled to a variance of one, fitted without the prompts that they predict (five folds of whole
groups of prompts, dealt by a seeded draw). R2 is one minus the squared error over the squares of the outcome itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings, Estimate, Floats, estimate, resampled_totals
from specstudy.analysis.means import numbered
from specstudy.analysis.writing.tokens import ANSWER, COLUMNS, CONTINUOUS, KINDS
from specstudy.records import AttentionExplained
from specstudy.seeds import uniforms

N_FOLDS = 5
FEWEST_GROUPS = 5
RIDGE = 1.0
"""The penalty, in tokens: it matters only where columns follow from each other, as the masses do, which sum to 1."""
TOKEN_FED, DRAFT_ENTROPY = "token_fed", "token_fed_and_draft_entropy"
ASKED = (("entropy_bits", TOKEN_FED), ("expected_accept", TOKEN_FED), ("expected_accept", DRAFT_ENTROPY))
"""Outcomes, and what is held."""
ATTENTION = [column for (_, layers), column in COLUMNS.items() if layers != "all"]
"""The measures of each third: those of all layers are their means."""


@dataclass(frozen=True)
class Explained:
    """Rows of the table `attention_explained`, and the gains behind them by outcome and what is held."""

    rows: list[AttentionExplained]
    gains: dict[tuple[str, str], Estimate]


def attention_explained(written: pd.DataFrame, settings: AnalysisSettings) -> Explained:
    """A row for each of `ASKED`; none without tokens. `written`: the frame of `tokens.written_tokens`."""
    rows, gains = [], {}
    for outcome, held in ASKED if not written.empty else ():
        row, gain = _explained(written, outcome, held, settings)
        rows.append(row)
        gains[outcome, held] = gain
    return Explained(rows, gains)


def _explained(
    written: pd.DataFrame, outcome: str, held: str, settings: AnalysisSettings
) -> tuple[AttentionExplained, Estimate]:
    attention = [name for name in ATTENTION if written[name].notna().any()]
    curved = [*CONTINUOUS, *(["draft_entropy_bits"] if held == DRAFT_ENTROPY else [])]
    tokens = written[[*ANSWER, "group", *curved, *KINDS, outcome, *attention]].dropna()
    groups, n_groups = numbered(tokens["group"].astype(object))
    reason = _why_not(tokens, outcome, attention, n_groups)
    n_prompts = int(tokens["prompt_id"].nunique())
    if reason:
        told = with_attention = gain = Estimate(n_prompts, null_reason=reason)
    else:
        known, seen = _within(_curved(tokens, curved), tokens), _within(tokens[attention], tokens)
        y = _within(tokens[[outcome]], tokens)[:, 0]
        folds = _folds(n_groups, settings.seed)
        errors = [squared_errors(x, y, groups, folds) for x in (known, np.hstack([known, seen]))]
        totals = np.column_stack([*errors, np.bincount(groups, y**2, n_groups)])
        told, with_attention, gain = (
            estimate(n_prompts, resampled_totals(totals, part, settings), settings.confidence)
            for part in (
                lambda sums: 1 - sums[:, 0] / sums[:, 2],
                lambda sums: 1 - sums[:, 1] / sums[:, 2],
                lambda sums: (sums[:, 0] - sums[:, 1]) / sums[:, 2],
            )
        )
    row = AttentionExplained(
        outcome=outcome,
        held=held,
        n=n_prompts,
        n_tokens=len(tokens),
        **gain.row(),
        **told.columns("r2_held", "r2_held_ci_"),
        **with_attention.columns("r2_with_attention", "r2_with_attention_ci_"),
    )
    return row, gain


def _why_not(tokens: pd.DataFrame, outcome: str, attention: Sequence[str], n_groups: int) -> str | None:
    if not attention:
        return "the model has no three thirds of layers"
    if n_groups < FEWEST_GROUPS:
        return f"{n_groups} independent prompts with every measure; {FEWEST_GROUPS} are needed to leave some out"
    return None if _within(tokens[[outcome]], tokens).size else "it does not vary within answers"


def _curved(tokens: pd.DataFrame, continuous: Sequence[str]) -> pd.DataFrame:
    """What is held, with the square root and the square of what is no kind."""
    values = tokens[[*continuous]]
    bends = [(values**power).add_suffix(f" to the power of {power}") for power in (0.5, 2)]
    return pd.concat([values, *bends, tokens[[*KINDS]]], axis=1)


def _within(columns: pd.DataFrame, tokens: pd.DataFrame) -> Floats:
    """Columns without their answer's mean, scaled to a variance of one where they vary: (tokens, columns)."""
    values = (columns - columns.groupby([tokens[name] for name in ANSWER]).transform("mean")).to_numpy(dtype=np.float64)
    spread = values.std(axis=0)
    varies = spread > 1e-9
    scaled: Floats = values[:, varies] / spread[varies]
    return scaled


def _folds(n_groups: int, seed: int) -> np.ndarray:
    """The fold of each group: (groups,)."""
    folds: np.ndarray = uniforms(seed, "folds", n_groups).permutation(n_groups) % N_FOLDS
    return folds


def squared_errors(x: Floats, y: Floats, groups: np.ndarray, folds: np.ndarray) -> Floats:
    """Each group's sum of squared errors of y (rows,) by regressions on x (rows, k) fitted in other folds: (groups,).

    No constant: columns have no mean. `groups` int (rows,), `folds` int (groups,).
    """
    predicted = np.empty(len(y))
    fold_of_row = folds[groups]
    products, towards = x.T @ x, x.T @ y
    for fold in np.unique(folds):
        left_out = fold_of_row == fold
        own, own_y = x[left_out], y[left_out]
        penalised = products - own.T @ own + RIDGE * np.eye(x.shape[1])
        predicted[left_out] = own @ np.linalg.solve(penalised, towards - own.T @ own_y)
    return np.bincount(groups, (y - predicted) ** 2, len(folds)).astype(np.float64)
