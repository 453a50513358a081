from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.correlation import correlate

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
    held = correlate(x, y, np.arange(200), "spearman", FEW, cause[:, None])
    assert raw.low > 0.8
    assert held.low < 0 < held.high


def test_what_a_covariate_makes_in_any_monotonic_way_is_taken_out():
    rng = np.random.default_rng(0)
    length = rng.uniform(0.0, 8.0, 300)
    category = rng.integers(0, 2, 300)
    # Each follows length and nothing else, one early and one late: ranks of both bend where length itself does not.
    x, y = np.exp(length) + rng.normal(0, 1.0, 300), np.exp(-length) + 0.02 * rng.normal(size=300) + category
    covariates = np.column_stack([category, np.exp(3 * length)])
    found = correlate(x, -y, np.arange(300), "spearman", FEW, covariates)
    assert found.low < 0 < found.high
    left_inside = correlate(stats.rankdata(x), -stats.rankdata(y), np.arange(300), "pearson", FEW, covariates)
    assert left_inside.low > 0.1


def test_ranking_changes_nothing_about_dummies():
    x, y = pair(60, 0.4)
    dummies = np.column_stack([np.arange(60) % 3 == i for i in (1, 2)]).astype(float)
    ranked, plain = stats.rankdata(x), stats.rankdata(y)
    by_hand = correlate(ranked, plain, np.arange(60), "pearson", FEW, dummies)
    assert correlate(x, y, np.arange(60), "spearman", FEW, dummies).value == pytest.approx(by_hand.value)


def test_prompts_that_are_all_alike_show_no_spread():
    x, y = (np.tile(values, 12) for values in pair(20, 0.3))
    estimate = correlate(x, y, np.repeat(np.arange(12), 20), "spearman", FEW)
    assert (estimate.value, estimate.p_value, estimate.low) == (None, None, None)
    assert estimate.null_reason == "the same in every sample of prompts"


def computed(x: np.ndarray, y: np.ndarray, method: str, covariates: np.ndarray | None) -> float:
    """The coefficient by SciPy, of what a least-squares fit leaves of measures or ranks."""
    if method == "spearman":
        x, y = stats.rankdata(x), stats.rankdata(y)
        covariates = None if covariates is None else stats.rankdata(covariates, axis=0)
    if covariates is not None:
        design = np.column_stack([ones(len(x)), covariates])
        x, y = (values - design @ np.linalg.lstsq(design, values, rcond=None)[0] for values in (x, y))
    return stats.pearsonr(x, y).statistic


@pytest.mark.parametrize("method", ["pearson", "spearman"])
@pytest.mark.parametrize("n_covariates", [0, 1])
@pytest.mark.parametrize("rows_a_prompt", [1, 8])
def test_resampling_is_drawing_prompts_with_their_rows(method, n_covariates, rows_a_prompt):
    prompts = np.repeat(np.arange(50), rows_a_prompt)
    x, y = pair(len(prompts), 0.5)
    x = x.round(1)
    covariates = np.random.default_rng(2).normal(size=(len(prompts), 1)) if n_covariates else None
    known = correlate(x, y, prompts, method, FEW, covariates).uncertainty

    def of(rows: np.ndarray) -> float:
        return computed(x[rows], y[rows], method, None if covariates is None else covariates[rows])

    drawn = [of(np.repeat(np.arange(len(prompts)), counts[prompts].astype(int))) for counts in FEW.counts(50)]
    without = np.array([of(np.flatnonzero(prompts != prompt)) for prompt in range(50)])
    assert known.value == pytest.approx(of(np.arange(len(prompts))))
    for ours, theirs in ((known.samples, np.array(drawn)), (known.jackknife, without)):
        assert np.corrcoef(ours, theirs)[0, 1] > (0.96 if n_covariates else 0.98)
        # Covariates are not fitted anew in every sample.
        assert ours.std() == pytest.approx(theirs.std(), rel=0.08 if n_covariates else 0.04)


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
        (np.r_[np.full(48, np.nan), 1.0, 2.0], "2 independent prompts with both measures; 3 are needed"),
        (np.full(50, np.nan), "0 independent prompts with both measures; 3 are needed"),
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
@settings(max_examples=60)
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
