"""The boundary against the last content tokens of the same prompt."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sink_tables import by, prompt_tables

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.sinks.boundary import boundary_answers, boundary_gain
from specstudy.analysis.sinks.positions import position_frame

FAST = AnalysisSettings(bootstrap_samples=200)
TEMPLATE = [9.0, 9.0, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def frame_of(content: list[list[float]]) -> pd.DataFrame:
    return position_frame(prompt_tables(content, structural_z=TEMPLATE))


def test_by_hand() -> None:
    # The boundary's mean is 3. Last six content tokens: a mean of 2 and of 3.5; what stands before them does not count.
    gain = boundary_gain(frame_of([[50.0] * 4 + [1.0, 3.0] * 3, [-50.0] * 4 + [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]))
    assert gain["z_score"].to_dict() == pytest.approx({"p00": 1.0, "p01": -0.5})
    assert gain["z_generated"].to_dict() == pytest.approx({"p00": 1.0, "p01": -0.5})
    # Every position of the boundary lies inside the window.
    assert gain["z_window"].isna().all()


def test_a_boundary_that_gets_what_any_late_token_gets_gains_nothing() -> None:
    rng = np.random.default_rng(0)
    late = [[*np.zeros(20), *(3 + rng.normal(0, 0.5, 6))] for _ in range(20)]
    row = by(boundary_answers(boundary_gain(frame_of(late)), {}, FAST), measure="z_score")
    assert row.ci_low < 0 < row.ci_high
    assert by(boundary_answers(boundary_gain(frame_of(late)), {}, FAST), measure="z_window").null_reason


def test_nothing_measured_gives_nothing() -> None:
    rows = boundary_answers(boundary_gain(position_frame({})), {}, FAST)
    assert all(row.estimate is None and row.null_reason for row in rows)
