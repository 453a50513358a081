from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from analysed import analysed
from synthetic import Plan

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.reliability import ceiling, spearman_brown, split_half

FAST = AnalysisSettings(bootstrap_samples=300)


def test_the_reliability_of_the_whole_is_recovered_from_its_halves():
    rng = np.random.default_rng(0)
    true = rng.normal(size=2000)
    halves = pd.DataFrame({side: true + rng.normal(size=2000) for side in (0, 1)})
    # Each half has reliability 1/2; the whole, with half the noise variance, 2/3.
    estimate = split_half(halves, FAST)
    assert estimate.value == pytest.approx(2 / 3, abs=0.03)
    assert estimate.low < 2 / 3 < estimate.high
    assert spearman_brown(0.5) == pytest.approx(2 / 3)


def test_halves_that_do_not_agree_have_no_reliability():
    estimate = split_half(pd.DataFrame({0: np.arange(20.0), 1: -np.arange(20.0)}), FAST)
    assert estimate.value is None
    assert estimate.null_reason.startswith("the halves do not agree")
    assert split_half(pd.DataFrame({0: np.arange(20.0)}), FAST).null_reason == "one token a prompt cannot be split"


def test_noise_bounds_the_correlation():
    rng = np.random.default_rng(0)
    true = rng.normal(size=5000)
    x, y = true + rng.normal(size=5000), true + 2 * rng.normal(size=5000)
    known = pd.DataFrame({"measure": ["mean_entropy_bits", "alpha"], "value": [1 / 2, 1 / 5]})
    assert np.corrcoef(x, y)[0, 1] == pytest.approx(ceiling(known, "mean_entropy_bits", "alpha"), abs=0.03)
    assert ceiling(known, "context_health_soft", "alpha") == pytest.approx(np.sqrt(1 / 5))
    assert ceiling(known, "mean_entropy_bits", "speedup") is None


def test_the_expected_number_is_the_less_noisy_one():
    table = analysed(Plan(n_answer_tokens=60))[0].reliability
    table = table.set_index(table["measure"].map(str))
    assert list(table.index) == ["mean_entropy_bits", "alpha", "alpha_expected", "acceptance_rate"]
    assert table.loc["alpha_expected", "value"] > table.loc["alpha", "value"]
    assert table["n"].eq(50).all()
