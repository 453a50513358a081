"""Correlations inside prompts: the coefficient of each, and their median."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.within import coefficients_within, median_within_prompt

FAST = AnalysisSettings(bootstrap_samples=200)


def partial_by_residuals(x: np.ndarray, y: np.ndarray, held: np.ndarray) -> float:
    ranks = [stats.rankdata(v) for v in (x, y, held)]
    left = [r - np.polyval(np.polyfit(ranks[2], r, 1), ranks[2]) for r in ranks[:2]]
    return float(np.corrcoef(*left)[0, 1])


class TestCoefficients:
    @given(st.integers(0, 1000))
    @example(859)  # the covariate fixes one of them
    def test_is_scipys_and_the_partial_one_that_of_residuals(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        prompts = np.repeat([0, 1, 2], [12, 9, 30])
        held = rng.integers(0, 8, 51).astype(float)
        x, y = (held * rng.normal() + rng.integers(0, 6, 51) for _ in range(2))
        plain, partial = (coefficients_within(x, y, prompts, 3, "spearman", z) for z in (None, held))
        for prompt in range(3):
            rows = prompts == prompt
            assert plain[prompt] == pytest.approx(stats.spearmanr(x[rows], y[rows]).statistic)
            fixed = any(abs(stats.spearmanr(v[rows], held[rows]).statistic) > 1 - 1e-12 for v in (x, y))
            expected = np.nan if fixed else partial_by_residuals(x[rows], y[rows], held[rows])
            assert partial[prompt] == pytest.approx(expected, nan_ok=True)

    def test_not_defined(self) -> None:
        prompts = np.repeat([0, 1, 2, 3], [7, 8, 8, 8])
        x = np.arange(31.0)
        y = np.where(prompts == 1, 5.0, x)
        y[prompts == 3] = np.nan
        np.testing.assert_array_equal(
            coefficients_within(x, y, prompts, 5, "spearman"), [np.nan, np.nan, 1.0, np.nan, np.nan]
        )

    def test_what_the_covariate_fixes_is_not_defined(self) -> None:
        x, y = np.arange(10.0), np.random.default_rng(0).normal(size=10)
        assert np.isnan(coefficients_within(x, y, np.zeros(10, dtype=np.intp), 1, "spearman", held=-x)[0])

    def test_pearsons_too(self) -> None:
        x, y = np.random.default_rng(0).normal(size=(2, 20))
        prompts = np.repeat([0, 1], 10)
        found = coefficients_within(x, y, prompts, 2, "pearson")
        assert found[1] == pytest.approx(stats.pearsonr(x[10:], y[10:]).statistic)


def test_within_prompt_coefficients_are_blind_to_differences_between_prompts():
    rng = np.random.default_rng(0)
    prompts = np.repeat(np.arange(30), 40)
    level = rng.normal(size=30)[prompts] * 5
    x, y = rng.normal(size=(2, 1200))
    inside = median_within_prompt(level + x, level - x + 0.5 * y, prompts, "spearman", FAST)
    assert inside.high < -0.7
    assert inside.n == 30
    assert inside.p_value < 1e-5
