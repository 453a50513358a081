from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from specstudy.analysis.bootstrap import AnalysisSettings, jackknife_error, resampled
from specstudy.analysis.fit import fitted_line
from specstudy.analysis.means import difference, mean, nested_mean, ratio

SETTINGS = AnalysisSettings(bootstrap_samples=3000)


def test_draws_depend_on_seed_and_number_of_prompts_alone():
    first, second = AnalysisSettings(seed=1), AnalysisSettings(seed=1)
    second.counts(7)
    assert (first.counts(20) == second.counts(20)).all()
    assert (first.counts(20).sum(axis=1) == 20).all()
    assert not (first.counts(20) == AnalysisSettings(seed=2).counts(20)).all()


def test_with_many_prompts_the_interval_is_scipys():
    values = np.random.default_rng(0).exponential(size=400)
    ours = mean(values, SETTINGS)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=3000, method="percentile", rng=1).confidence_interval
    assert ours.low == pytest.approx(theirs.low, abs=0.01)
    assert ours.high == pytest.approx(theirs.high, abs=0.01)


def test_with_few_prompts_it_is_as_wide_as_students():
    values = stats.norm.ppf((np.arange(10) + 0.5) / 10)
    ours = mean(values, AnalysisSettings(bootstrap_samples=20000))
    half = stats.t.ppf(0.975, 9) * values.std(ddof=1) / np.sqrt(10)
    assert (ours.low, ours.high) == (pytest.approx(-half, rel=0.06), pytest.approx(half, rel=0.06))


def test_the_jackknifes_error_is_the_standard_error_of_a_mean_and_of_a_difference():
    a, b = np.random.default_rng(0).normal(size=10), 3 * np.random.default_rng(1).normal(size=30)
    one, degrees = jackknife_error(-a / 9)
    assert one == pytest.approx(stats.sem(a))
    assert 2 < degrees <= 9
    both, degrees = jackknife_error(np.r_[-a / 9, b / 29], np.repeat([0, 1], [10, 30]))
    assert both == pytest.approx(np.hypot(stats.sem(a), stats.sem(b)))
    assert degrees <= stats.ttest_ind(a, b, equal_var=False).df + 1e-9


def test_a_prompt_that_makes_the_variance_leaves_few_degrees_of_freedom():
    even = np.tile([-1.0, 1.0], 25)
    assert jackknife_error(even)[1] == pytest.approx(49)
    assert jackknife_error(np.r_[even[:-1], 40.0])[1] < 3


def test_p_is_one_minus_the_coverage_of_the_interval_that_just_reaches_the_value():
    known = mean(np.random.default_rng(0).exponential(size=30), SETTINGS).uncertainty
    low, high = known.interval(0.9)
    assert known.p_value(low) == pytest.approx(0.1, abs=0.005)
    assert known.p_value(high) == pytest.approx(0.1, abs=0.005)


def test_confidence_widens_the_interval():
    values = np.random.default_rng(0).normal(size=40)
    narrow, wide = (mean(values, AnalysisSettings(confidence=c)) for c in (0.8, 0.99))
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high


def test_no_sample_with_a_value_means_no_interval():
    assert resampled(0.5, np.full(10, np.nan), np.zeros(5)) is None


def test_p_of_a_value_beyond_every_sample_goes_on_falling():
    known = mean(np.random.default_rng(0).normal(size=60), SETTINGS).uncertainty
    near, far, farther = (known.p_value(reference) for reference in (0.5, 2.0, 3.0))
    assert near > far > farther > 0
    assert far < 1 / len(known.samples)


def test_groups_of_equal_size_do_not_share_their_draws():
    values = np.random.default_rng(0).normal(size=20)
    estimate = difference(values, values, SETTINGS)
    assert estimate.value == 0
    assert estimate.high - estimate.low > values.std()


def test_the_mean_of_prompts_in_groups_weighs_prompts_and_draws_groups():
    """One, two, three and four prompts a group; the interval is that of group sums over group sizes, by hand."""
    groups = np.repeat(np.arange(4), [1, 2, 3, 4])
    values = np.arange(10.0) ** 2
    found = mean(values, SETTINGS, groups=groups)
    assert (found.n, found.value) == (10, pytest.approx(28.5))
    sums, sizes = np.array([0.0, 5.0, 50.0, 230.0]), np.array([1.0, 2.0, 3.0, 4.0])
    rng = np.random.default_rng([0, 4])
    drawn = [rng.integers(4, size=4) for _ in range(3000)]
    samples = [sums[of].sum() / sizes[of].sum() for of in drawn]
    without = (sums.sum() - sums) / (sizes.sum() - sizes)
    parts = 3 / 4 * (without - without.mean()) ** 2
    degrees = min(2 * parts.sum() ** 2 / ((parts - parts.mean()) ** 2).sum(), 3)
    tail = np.sqrt(parts.sum()) / np.std(samples) * stats.t.ppf(0.975, degrees)
    ends = np.quantile(samples, stats.norm.cdf([-tail, tail]))
    assert (found.low, found.high) == (pytest.approx(ends[0]), pytest.approx(ends[1]))


def test_prompts_of_a_group_are_averaged_before_two_sides_are_compared():
    a, b = np.array([0.0, 6.0, 6.0, 2.0, 1.0]), np.array([1.0, 1.0, 0.0, 5.0])
    found = difference(a, b, SETTINGS, groups=(np.array([0, 1, 1, 2, 1]), np.array([3, 3, 4, 5])))
    assert (found.n, found.value) == (9, pytest.approx((0 + 13 / 3 + 2) / 3 - (1 + 0 + 5) / 3))


def test_means_of_too_little_have_a_reason():
    assert mean(np.array([1.0, np.nan]), SETTINGS).null_reason == "1 independent prompts; an interval needs 3"
    assert "5 and 2" in difference(np.arange(5.0), np.arange(2.0), SETTINGS).null_reason


@pytest.mark.parametrize(
    "estimate",
    [
        mean(np.full(5, 2.0), SETTINGS),
        difference(np.full(5, 3.0), np.full(4, 1.0), SETTINGS),
        ratio(np.array([2.0, 4.0, 6.0]), np.array([1.0, 2.0, 3.0]), SETTINGS),
        nested_mean(np.tile([1.0, 3.0], 6), np.repeat([0, 1, 2], 4), 3, SETTINGS),
        nested_mean(np.full(12, 2.0), np.repeat([0, 1, 2], 4), 3, SETTINGS),
    ],
)
def test_what_does_not_vary_from_prompt_to_prompt_has_neither_interval_nor_p(estimate):
    assert (estimate.value, estimate.null_reason) == (2.0, "the same in every sample of prompts")
    assert (estimate.low, estimate.high, estimate.p_value, estimate.uncertainty) == (None,) * 4


def test_a_ratio_weighs_prompts_by_their_rows():
    estimate = ratio(np.array([1.0, 8.0, 3.0, 0.0]), np.array([2.0, 10.0, 4.0, 0.0]), SETTINGS)
    assert estimate.value == pytest.approx(12 / 16)
    assert estimate.n == 16
    assert estimate.low <= estimate.value <= estimate.high


def test_rows_nested_in_prompts_make_wider_intervals_than_rows_alone():
    rng = np.random.default_rng(0)
    prompts = np.repeat(np.arange(20), 50)
    values = rng.normal(size=20)[prompts] + 0.1 * rng.normal(size=1000)
    nested = nested_mean(values, prompts, 20, SETTINGS)
    alone = nested_mean(values, np.arange(1000), 1000, SETTINGS)
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


def test_the_band_of_a_line_is_the_interval_of_every_other_estimate():
    rng = np.random.default_rng(0)
    n, settings = 8, AnalysisSettings(bootstrap_samples=300)
    x = np.arange(float(n))
    y = 2 * x + rng.normal(size=n)

    def end_of_line(weights: np.ndarray) -> float:
        slope, intercept = np.polyfit(x, y, 1, w=np.sqrt(weights))
        return slope * x[-1] + intercept

    samples = np.array(
        [end_of_line(weights) if np.count_nonzero(weights) > 1 else np.nan for weights in settings.counts(n)]
    )
    without = np.array([end_of_line(weights) for weights in 1 - np.eye(n)])
    low, high = resampled(end_of_line(np.ones(n)), samples, without).interval(0.95)
    band = fitted_line(x, y, settings).iloc[-1]
    assert (band["low"], band["high"]) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize("x", [np.zeros(10), np.array([1.0, 2.0]), np.full(10, np.nan)])
def test_no_line_through_nothing(x):
    assert fitted_line(x, np.arange(float(len(x))), SETTINGS).empty
