from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from specstudy.analysis import correlation
from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.correlation import correlate, weighted_correlation

FEW = AnalysisSettings(bootstrap_samples=400)


def pair(n: int, rho: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return x, rho * x + np.sqrt(1 - rho**2) * rng.normal(size=n)


def ones(n: int) -> np.ndarray:
    return np.ones((n, 1))


@pytest.mark.parametrize(("method", "reference"), [("pearson", stats.pearsonr), ("spearman", stats.spearmanr)])
def test_value_and_p_are_those_of_scipy(method, reference):
    x, y = pair(30, 0.4)
    y[3] = y[7]
    estimate = correlate(x, y, np.arange(30), method, FEW)
    expected = reference(x, y)
    assert estimate.value == pytest.approx(expected.statistic)
    assert estimate.p_value == pytest.approx(expected.pvalue, rel=1e-6)
    assert estimate.low < estimate.value < estimate.high
    assert estimate.n == 30


def test_partial_correlation_has_the_p_of_a_regression_coefficient():
    x, y = pair(40, 0.3)
    covariates = np.column_stack([np.random.default_rng(1).normal(size=40), np.arange(40) % 3 == 0]).astype(float)
    regression = sm.OLS(y, sm.add_constant(np.column_stack([x, covariates]))).fit()
    estimate = correlate(x, y, np.arange(40), "pearson", FEW, covariates)
    assert estimate.p_value == pytest.approx(regression.pvalues[1])
    assert np.sign(estimate.value) == np.sign(regression.params[1])


def test_a_common_cause_is_taken_out():
    rng = np.random.default_rng(0)
    cause = rng.normal(size=200)
    x, y = cause + 0.3 * rng.normal(size=200), cause + 0.3 * rng.normal(size=200)
    raw = correlate(x, y, np.arange(200), "spearman", FEW)
    held = correlate(x, y, np.arange(200), "spearman", FEW, stats.rankdata(cause)[:, None])
    assert raw.low > 0.8
    assert held.low < 0 < held.high


@given(arrays.arrays(float, 12, elements=st.integers(0, 6).map(float)), st.integers(0, 2**31))
@settings(max_examples=50, deadline=None)
def test_weights_count_as_repeated_rows(x, seed):
    rng = np.random.default_rng(seed)
    y, weights = rng.normal(size=12), rng.integers(0, 4, size=(1, 12))
    rows = np.repeat(np.arange(12), weights[0])
    value = weighted_correlation(x, y, weights.astype(float), "spearman", ones(12))[0]
    if len(np.unique(x[rows])) < 2 or len(np.unique(rows)) < 2:
        assert np.isnan(value)
    else:
        assert value == pytest.approx(stats.spearmanr(x[rows], y[rows]).statistic, abs=1e-9)


@pytest.mark.parametrize("method", ["pearson", "spearman"])
@pytest.mark.parametrize("n_covariates", [0, 1])
def test_moments_know_what_leaving_a_prompt_out_does(monkeypatch, method, n_covariates):
    prompts = np.repeat(np.arange(50), 8)
    x, y = pair(400, 0.5)
    covariates = np.random.default_rng(2).normal(size=(400, n_covariates)) if n_covariates else None
    exact = correlate(x, y, prompts, method, FEW, covariates).uncertainty.jackknife
    monkeypatch.setattr(correlation, "EXACT_ROWS", 0)
    by_moments = correlate(x, y, prompts, method, FEW, covariates).uncertainty.jackknife
    assert np.corrcoef(by_moments, exact)[0, 1] > 0.995
    assert by_moments.std() == pytest.approx(exact.std(), rel=0.05)


@pytest.mark.parametrize("method", ["pearson", "spearman"])
@pytest.mark.parametrize("rows_a_prompt", [1, 8])
def test_moments_agree_with_ranking_every_resample_anew(monkeypatch, method, rows_a_prompt):
    prompts = np.repeat(np.arange(100), rows_a_prompt)
    shared = np.random.default_rng(3).normal(size=(2, 100))[:, prompts]
    x, y = pair(len(prompts), 0.5)
    x, y = x + shared[0], y + shared[1]
    exact = correlate(x, y, prompts, method, AnalysisSettings())
    monkeypatch.setattr(correlation, "EXACT_ROWS", 0)
    by_moments = correlate(x, y, prompts, method, AnalysisSettings())
    assert by_moments.value == pytest.approx(exact.value, abs=1e-12)
    assert by_moments.low == pytest.approx(exact.low, abs=0.02)
    assert by_moments.high == pytest.approx(exact.high, abs=0.02)


def test_tokens_of_a_prompt_are_not_taken_for_independent():
    x, y = pair(40, 0.4)
    alone = correlate(x, y, np.arange(40), "spearman", FEW)
    repeated = correlate(np.repeat(x, 25), np.repeat(y, 25), np.repeat(np.arange(40), 25), "spearman", FEW)
    assert repeated.n == 1000
    assert repeated.high - repeated.low == pytest.approx(alone.high - alone.low, rel=0.05)
    assert repeated.p_value == pytest.approx(alone.p_value, abs=0.1)
    assert stats.spearmanr(np.repeat(x, 25), np.repeat(y, 25)).pvalue < 0.05 < alone.p_value


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (np.full(50, 10.0), "x is constant (10)"),
        (np.r_[np.full(48, 10.0), 4.2, 4.5], "x is nearly constant (10 in 48 of 50 rows)"),
        (np.r_[np.full(48, np.nan), 1.0, 2.0], "2 prompts with both measures; 3 are needed"),
        (np.full(50, np.nan), "0 prompts with both measures; 3 are needed"),
    ],
)
@pytest.mark.parametrize("method", ["pearson", "spearman"])
def test_what_is_not_defined_is_null_with_its_reason(x, reason, method):
    estimate = correlate(x, np.arange(50.0), np.arange(50), method, FEW)
    assert estimate.null_reason == reason
    assert (estimate.value, estimate.low, estimate.high, estimate.p_value) == (None,) * 4


def test_a_measure_fixed_by_the_covariates_has_no_partial_correlation():
    x, y = pair(30, 0.5)
    assert correlate(x, y, np.arange(30), "pearson", FEW, x[:, None]).null_reason == "x is fixed by the covariates"
    too_many = np.random.default_rng(0).normal(size=(4, 3))
    assert "too few" in correlate(x[:4], y[:4], np.arange(4), "pearson", FEW, too_many).null_reason


@given(st.integers(3, 12), st.integers(0, 2**31), st.sampled_from(["pearson", "spearman"]))
@settings(max_examples=60, deadline=None)
def test_an_estimate_is_whole_or_null_and_never_nan(n, seed, method):
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 3, n).astype(float), rng.integers(0, 4, n).astype(float)
    estimate = correlate(x, y, np.arange(n), method, AnalysisSettings(bootstrap_samples=50))
    numbers = (estimate.value, estimate.low, estimate.high, estimate.p_value)
    if estimate.null_reason:
        assert numbers == (None,) * 4
    else:
        assert np.isfinite(numbers).all()
        assert -1 <= estimate.low <= estimate.high <= 1


def test_a_perfect_correlation_is_not_an_error():
    estimate = correlate(np.arange(20.0), np.arange(20.0) * 3, np.arange(20), "spearman", FEW)
    assert estimate.value == pytest.approx(1)
    assert estimate.p_value == pytest.approx(0, abs=1e-9)
