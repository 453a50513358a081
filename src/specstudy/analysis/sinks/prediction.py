"""How well what is known at prefill predicts what the answer's tokens attend to: rank correlations within prompts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings, Codes, Estimate
from specstudy.analysis.means import mean
from specstudy.analysis.sinks.positions import CONTENT
from specstudy.analysis.within import FEWEST_ROWS, coefficients_within
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
    """Rank correlation of each case with `attention_from_generated` inside each prompt: prompt_id, group, value, case.

    Prompts where the coefficient is not defined have no row.
    """
    prompts = positions.groupby("prompt")[["prompt_id", "group"]].first()
    parts = [prompts[:0].assign(value=np.zeros(0), **dict.fromkeys(Case._fields, ""))]
    for case in CASES:
        rows = positions[_is_asked(positions, case.positions)]
        x, y, place = (rows[name].to_numpy(dtype=np.float64) for name in (case.predictor, TARGET, POSITION))
        codes: Codes = rows["prompt"].to_numpy().astype(np.intp)
        held = place if case.held_constant == POSITION else None
        values = coefficients_within(x, y, codes, len(prompts), "spearman", held)
        defined = np.isfinite(values)
        parts.append(prompts[defined].assign(value=values[defined], **case._asdict()))
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
        rows.append(_row(case, values["value"], values["group"], settings))
        if case.predictor == WINDOW:
            received = by_case.get(tuple(case._replace(predictor=RECEIVED)), empty)
            both = values.merge(received[["prompt_id", "value"]], on="prompt_id", suffixes=("", "_received"))
            gain = both["value"] - both["value_received"]
            rows.append(_row(case._replace(predictor=WINDOW_GAIN), gain, both["group"], settings))
    return rows


def _row(case: Case, values: pd.Series, groups: pd.Series, settings: AnalysisSettings) -> SinkPrediction:
    estimate = mean(values.to_numpy(dtype=np.float64), settings, groups=groups.to_numpy(dtype=np.intp))
    if not estimate.n:
        why = f"no prompt has {FEWEST_ROWS} such positions where both measures are defined and vary"
        estimate = Estimate(0, null_reason=why)
    return SinkPrediction(**case._asdict(), n_prompts=estimate.n, **estimate.row())
