from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from specstudy.analysis.bootstrap import AnalysisSettings, resampled
from specstudy.analysis.fit import fitted_line
from specstudy.analysis.means import difference, mean, ratio, row_mean

SETTINGS = AnalysisSettings(bootstrap_samples=3000)


def test_draws_depend_on_seed_and_number_of_prompts_alone():
    first, second = AnalysisSettings(seed=1), AnalysisSettings(seed=1)
    second.counts(7)
    assert (first.counts(20) == second.counts(20)).all()
    assert (first.counts(20).sum(axis=1) == 20).all()
    assert not (first.counts(20) == AnalysisSettings(seed=2).counts(20)).all()


def test_the_interval_is_scipys_bca():
    values = np.random.default_rng(0).exponential(size=60)
    ours = mean(values, SETTINGS)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=3000, method="BCa", rng=1).confidence_interval
    assert ours.low == pytest.approx(theirs.low, abs=0.03)
    assert ours.high == pytest.approx(theirs.high, abs=0.03)


def test_confidence_widens_the_interval():
    values = np.random.default_rng(0).normal(size=40)
    narrow, wide = (mean(values, AnalysisSettings(confidence=c)) for c in (0.8, 0.99))
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high


def test_no_sample_with_a_value_means_no_interval():
    assert resampled(0.5, np.full(10, np.nan), np.zeros(5)) is None


def test_intervals_of_means_and_differences_cover():
    covered = []
    for seed in range(200):
        a, b = np.random.default_rng(seed).exponential(size=(2, 30))
        settings = AnalysisSettings(bootstrap_samples=400)
        one, two = mean(a, settings, reference=1), difference(a, b + 0.5, settings)
        covered.append((one.low <= 1 <= one.high, two.low <= -0.5 <= two.high))
    # Three standard errors below 0.95 are 0.904; skewed data at n = 30 cost a little more.
    assert (np.mean(covered, axis=0) > 0.88).all()


def test_groups_of_equal_size_do_not_share_their_draws():
    values = np.random.default_rng(0).normal(size=20)
    estimate = difference(values, values, SETTINGS)
    assert estimate.value == 0
    assert estimate.high - estimate.low > values.std()


def test_means_of_too_little_have_a_reason():
    assert mean(np.array([1.0, np.nan]), SETTINGS).null_reason == "1 prompts; an interval needs 3"
    assert mean(np.full(5, 2.0), SETTINGS).null_reason == "all 5 prompts hold the same value"
    assert mean(np.full(5, 2.0), SETTINGS).value == 2
    assert "groups of 5 and 2" in difference(np.arange(5.0), np.arange(2.0), SETTINGS).null_reason


def test_a_ratio_weighs_prompts_by_their_rows():
    estimate = ratio(np.array([1.0, 8.0, 3.0, 0.0]), np.array([2.0, 10.0, 4.0, 0.0]), SETTINGS)
    assert estimate.value == pytest.approx(12 / 16)
    assert estimate.n == 16
    assert estimate.low <= estimate.value <= estimate.high


def test_rows_nested_in_prompts_make_wider_intervals_than_rows_alone():
    import pandas as pd

    rng = np.random.default_rng(0)
    prompts = pd.Series(np.repeat(np.arange(20), 50))
    values = rng.normal(size=20)[prompts] + 0.1 * rng.normal(size=1000)
    nested = row_mean(values, prompts, SETTINGS)
    alone = row_mean(values, pd.Series(np.arange(1000)), SETTINGS)
    assert nested.value == pytest.approx(alone.value)
    assert nested.high - nested.low > 4 * (alone.high - alone.low)


def test_the_line_is_least_squares_and_lies_in_its_band():
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    y = 2 * x + rng.normal(size=40)
    line = fitted_line(x, y, SETTINGS)
    slope, intercept = np.polyfit(x, y, 1)
    np.testing.assert_allclose(line["value"], slope * line["x"] + intercept)
    assert ((line["low"] < line["value"]) & (line["value"] < line["high"])).all()


@pytest.mark.parametrize("x", [np.zeros(10), np.array([1.0, 2.0]), np.full(10, np.nan)])
def test_no_line_through_nothing(x):
    assert fitted_line(x, np.arange(float(len(x))), SETTINGS).empty
