"""How well what is known at prefill foretells what the answer's tokens attend to: rank correlations within prompts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings, Codes, Estimate, Floats
from specstudy.analysis.means import mean
from specstudy.analysis.sinks.estimates import as_columns
from specstudy.analysis.sinks.positions import CONTENT
from specstudy.formulas import MIN_CONTENT_POSITIONS
from specstudy.records import SinkPrediction

TARGET = "attention_from_generated"
RECEIVED, WINDOW, POSITION = "attention_received", "attention_window", "position"
WINDOW_GAIN = "attention_window minus attention_received"
NOTHING = "nothing"


class Case(NamedTuple):
    """A predictor, the positions it is asked about, and what is held constant.

    `positions` is `content`, `all`, or the part of either before the observation window. Only there has the window
    seen anything, and only there can the two prefill measures be compared.
    """

    predictor: str
    positions: str
    held_constant: str


CASES = tuple(
    Case(predictor, positions, held)
    for positions in ("content", "content_before_window", "all", "all_before_window")
    for held in (NOTHING, POSITION)
    for predictor in (RECEIVED, WINDOW, POSITION)
    if predictor != held and (predictor != WINDOW or positions.endswith("before_window"))
)


def prediction_frame(positions: pd.DataFrame) -> pd.DataFrame:
    """Rank correlation of each case with `attention_from_generated` inside each prompt: prompt_id, value, and the case.

    Prompts under 8 such positions, or where the coefficient is not defined, have no row.
    """
    names = positions.groupby("prompt")["prompt_id"].first().to_numpy(dtype=object)
    parts = [pd.DataFrame({"prompt_id": names[:0], "value": np.zeros(0), **dict.fromkeys(Case._fields, "")})]
    for case in CASES:
        rows = positions[_is_asked(positions, case.positions)]
        x, y, place = (rows[name].to_numpy(dtype=np.float64) for name in (case.predictor, TARGET, POSITION))
        codes: Codes = rows["prompt"].to_numpy().astype(np.intp)
        values = rank_correlations(x, y, codes, len(names), place if case.held_constant == POSITION else None)
        defined = np.isfinite(values)
        parts.append(pd.DataFrame({"prompt_id": names[defined], "value": values[defined], **case._asdict()}))
    return pd.concat(parts, ignore_index=True)


def _is_asked(positions: pd.DataFrame, subset: str) -> np.ndarray:
    asked = positions[TARGET].notna().to_numpy()
    if subset.startswith("content"):
        asked = asked & (positions["place"] == CONTENT).to_numpy()
    if subset.endswith("before_window"):
        asked = asked & positions[WINDOW].notna().to_numpy()
    return asked


def predictions(frame: pd.DataFrame, settings: AnalysisSettings) -> list[SinkPrediction]:
    """Mean over prompts of each case of `prediction_frame`, and of the difference of the two prefill measures."""
    by_case = dict(iter(frame.groupby(list(Case._fields))))
    empty = frame.iloc[:0]
    rows = []
    for case in CASES:
        values = by_case.get(tuple(case), empty)
        rows.append(_row(case, values["value"].to_numpy(), settings))
        if case.predictor == WINDOW:
            received = by_case.get(tuple(case._replace(predictor=RECEIVED)), empty)
            gain = values.set_index("prompt_id")["value"] - received.set_index("prompt_id")["value"]
            rows.append(_row(case._replace(predictor=WINDOW_GAIN), gain.dropna().to_numpy(), settings))
    return rows


def _row(case: Case, values: Floats, settings: AnalysisSettings) -> SinkPrediction:
    estimate = mean(values, settings)
    if not estimate.n:
        why = f"no prompt has {MIN_CONTENT_POSITIONS} such positions where both measures are defined and vary"
        estimate = Estimate(0, null_reason=why)
    return SinkPrediction(**case._asdict(), n_prompts=estimate.n, **as_columns(estimate))


def rank_correlations(x: Floats, y: Floats, prompts: Codes, n_prompts: int, held: Floats | None = None) -> Floats:
    """Spearman's coefficient of x and y (rows,) inside each prompt, partial on `held` if given: float64 (n_prompts,).

    `prompts` int (rows,): 0 to n_prompts - 1. NaN under 8 rows, and where a measure is constant or fixed by the
    covariate. Rows with a NaN are left out.
    """
    kept = np.isfinite(x) & np.isfinite(y)
    columns = {"x": x[kept], "y": y[kept]} | ({} if held is None else {"held": held[kept]})
    codes = prompts[kept]
    ranks = pd.DataFrame(columns).groupby(codes).rank()
    ranks -= ranks.groupby(codes).transform("mean")
    enough = np.bincount(codes, minlength=n_prompts) >= MIN_CONTENT_POSITIONS

    def coefficient(a: str, b: str) -> Floats:
        ab, aa, bb = (np.bincount(codes, ranks[p] * ranks[q], n_prompts) for p, q in ((a, b), (a, a), (b, b)))
        defined = (aa > 0) & (bb > 0) & enough
        return np.where(defined, ab / np.sqrt(np.where(defined, aa * bb, 1.0)), np.nan)

    if held is None:
        return coefficient("x", "y")
    xy, xh, yh = coefficient("x", "y"), coefficient("x", "held"), coefficient("y", "held")
    left = (1 - xh**2) * (1 - yh**2)
    free = left > 1e-12
    return np.where(free, (xy - xh * yh) / np.sqrt(np.where(free, left, 1.0)), np.nan)
