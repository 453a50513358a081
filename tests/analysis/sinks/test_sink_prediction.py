"""Rank correlations inside prompts, of what is known at prefill with what the answer attends to."""

from __future__ import annotations

import numpy as np
import pytest
from sink_tables import by, prompt_tables

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.sinks.positions import position_frame
from specstudy.analysis.sinks.prediction import (
    RECEIVED,
    WINDOW,
    WINDOW_GAIN,
    prediction_frame,
    predictions,
)

FAST = AnalysisSettings(bootstrap_samples=200)


def recency_tables(strength: float, n: int = 12) -> dict:
    """Prompts where both measures rise with position and have nothing else in common but `strength`."""
    rng = np.random.default_rng(1)
    received, seen = [], []
    for _ in range(n):
        own = rng.normal(size=40)
        near = np.linspace(0, 6, 40)
        received.append(list(near + own))
        seen.append(list(near + strength * own + (1 - strength) * rng.normal(size=40)))
    return prompt_tables(received, generated_z=seen, window=8)


class TestPredictions:
    def test_nearness_alone_is_seen_through(self) -> None:
        rows = predictions(prediction_frame(position_frame(recency_tables(0.0))), FAST)
        raw = by(rows, predictor=RECEIVED, positions="content", held_constant="nothing")
        held = by(rows, predictor=RECEIVED, positions="content", held_constant="position")
        assert raw.ci_low > 0.5
        assert held.ci_low < 0.1
        assert abs(held.estimate) < 0.15

    def test_what_is_planted_beside_nearness_stays(self) -> None:
        rows = predictions(prediction_frame(position_frame(recency_tables(1.0))), FAST)
        held = by(rows, predictor=RECEIVED, positions="content", held_constant="position")
        assert held.estimate == pytest.approx(1.0)
        assert held.ci_low is None
        assert "same" in held.null_reason

    def test_the_two_measures_are_compared_where_both_were_measured(self) -> None:
        tables = recency_tables(0.5)
        frame = prediction_frame(position_frame(tables))
        rows = predictions(frame, FAST)
        gain = by(rows, predictor=WINDOW_GAIN, positions="content_before_window", held_constant="nothing")
        assert gain.estimate == pytest.approx(0.0)  # the made-up tables give both the same values
        assert gain.n_prompts == 12
        tables["prefill_tokens"]["attention_window"] *= -1
        rows = predictions(prediction_frame(position_frame(tables)), FAST)
        before = by(rows, predictor=RECEIVED, positions="content_before_window", held_constant="nothing").estimate
        gain = by(rows, predictor=WINDOW_GAIN, positions="content_before_window", held_constant="nothing")
        assert gain.estimate == pytest.approx(-2 * before)

    def test_the_window_is_never_asked_about_what_it_did_not_see(self) -> None:
        frame = prediction_frame(position_frame(recency_tables(0.5)))
        assert set(frame.loc[frame["predictor"] == WINDOW, "positions"]) == {
            "content_before_window",
            "all_before_window",
        }

    def test_short_prompts_have_none_and_the_reason_says_so(self) -> None:
        rows = predictions(prediction_frame(position_frame(prompt_tables([[0.0, 1.0, 2.0]] * 3))), FAST)
        row = by(rows, predictor=RECEIVED, positions="content", held_constant="nothing")
        assert (row.n_prompts, row.estimate) == (0, None)
        assert "8 such positions" in row.null_reason

    def test_without_decoding_nothing_is_said(self) -> None:
        tables = {"prefill_tokens": recency_tables(0.5)["prefill_tokens"]}
        rows = predictions(prediction_frame(position_frame(tables)), FAST)
        assert rows
        assert all(r.estimate is None and r.null_reason for r in rows)
