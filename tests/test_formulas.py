"""Scores, theory and FLOPs: reference values, properties, and what is not defined."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from specstudy import formulas

Floats = NDArray[np.float64]

alphas = st.floats(0.0, 1.0)
gammas = st.integers(1, 32)
cost_ratios = st.floats(0.0, 2.0)
attentions = st.integers(8, 40).flatmap(lambda n: arrays(np.float64, n, elements=st.floats(1e-6, 1.0)))


def robust(attention: Floats, is_content: NDArray[np.bool_] | None = None) -> Floats:
    values = formulas.robust_z_scores(attention, np.ones(len(attention), bool) if is_content is None else is_content)
    assert values.values is not None, values.null_reason
    return values.values


class TestRobustZScores:
    def test_by_hand(self) -> None:
        attention = np.exp(np.arange(9.0))  # median of the logs 4, absolute deviations 4 3 2 1 0 1 2 3 4, MAD 2
        assert robust(attention) == pytest.approx((np.arange(9.0) - 4) / (1.4826 * 2))

    def test_structural_positions_are_scored_but_do_not_count(self) -> None:
        content = np.exp(np.arange(9.0))
        attention = np.concatenate([[1e6], content])
        is_content = np.array([False] + [True] * 9)
        scores = robust(attention, is_content)
        assert scores[1:] == pytest.approx(robust(content))
        assert scores[0] == pytest.approx((math.log(1e6) - 4) / (1.4826 * 2))

    def test_no_attention_counts_as_the_floor(self) -> None:
        attention = np.exp(np.arange(9.0))
        attention[0] = 0.0
        assert robust(attention)[0] == pytest.approx((math.log(1e-8) - 4) / (1.4826 * 2))

    @given(attentions, st.floats(0.1, 10.0))
    def test_a_common_factor_changes_nothing(self, attention: Floats, factor: float) -> None:
        everywhere = np.ones(len(attention), bool)
        before = formulas.robust_z_scores(attention, everywhere)
        after = formulas.robust_z_scores(attention * factor, everywhere)
        assume(before.values is not None and after.values is not None)
        assert before.values is not None
        assert after.values == pytest.approx(before.values, rel=1e-4, abs=1e-4)

    @settings(suppress_health_check=[HealthCheck.filter_too_much])
    @given(attentions)
    def test_order_and_middle_are_kept(self, attention: Floats) -> None:
        scores = formulas.robust_z_scores(attention, np.ones(len(attention), bool)).values
        assume(scores is not None)
        assert scores is not None
        assert np.isfinite(scores).all()
        assert np.median(scores) == pytest.approx(0.0, abs=1e-9)
        assert np.median(np.abs(scores)) == pytest.approx(1 / 1.4826)
        assert (np.diff(scores[np.argsort(attention)]) >= 0).all()

    @given(attentions)
    def test_positions_may_come_in_any_order(self, attention: Floats) -> None:
        order = np.random.default_rng(len(attention)).permutation(len(attention))
        everywhere = np.ones(len(attention), bool)
        before = formulas.robust_z_scores(attention, everywhere)
        after = formulas.robust_z_scores(attention[order], everywhere)
        assert (before.values is None) == (after.values is None)
        if before.values is not None:
            assert after.values == pytest.approx(before.values[order])

    @pytest.mark.parametrize(
        ("attention", "reason"),
        [
            ([1, 1, 1, 1, 1, 1, 1, 9], "MAD is 0"),
            ([1] * 8, "MAD is 0"),
            ([0] * 20, "MAD is 0"),
            ([1e-9, 1e-12] * 4, "MAD is 0"),  # both under the floor of 1e-8
            ([1, 2, 3, 4, 5, 6, 7], "7 content positions, 8 needed"),
            ([1], "1 content positions, 8 needed"),
            ([], "0 content positions, 8 needed"),
        ],
    )
    def test_not_defined_with_a_reason(self, attention: list[float], reason: str) -> None:
        scores = formulas.robust_z_scores(np.array(attention, dtype=float), np.ones(len(attention), bool))
        assert scores.values is None
        assert scores.null_reason is not None
        assert reason in scores.null_reason

    def test_only_content_positions_are_counted_towards_the_eight(self) -> None:
        attention = np.exp(np.arange(12.0))
        assert formulas.robust_z_scores(attention, np.arange(12) < 7).values is None
        assert formulas.robust_z_scores(attention, np.arange(12) < 8).values is not None


class TestContextHealth:
    @pytest.mark.parametrize(
        ("z", "threshold", "health"),
        [
            ([0.0] * 10, 6.0, 10.0),
            ([6.0] + [0.0] * 9, 6.0, 10.0),  # at the threshold is not over it
            ([7.0] + [0.0] * 9, 6.0, 10 - 1 - 5),
            ([3.0] + [0.0] * 9, 2.0, 10 - 1 - 3),
            ([3.0, 4.0] + [0.0] * 8, 2.0, 10 - 2 - 3.5),
            ([9.0] * 10, 6.0, 0.0),  # 10 - 10 - 5 is cut off at 0
        ],
    )
    def test_by_hand(self, z: list[float], threshold: float, health: float) -> None:
        assert formulas.context_health(np.array(z), threshold) == pytest.approx(health)

    @given(arrays(np.float64, st.integers(8, 30), elements=st.floats(-10, 30)), st.floats(0.1, 10))
    def test_stays_in_range(self, z: Floats, threshold: float) -> None:
        assert 0.0 <= formulas.context_health(z, threshold) <= 10.0

    @given(arrays(np.float64, st.integers(8, 30), elements=st.floats(-10, 30)), st.floats(5, 10))
    def test_the_first_sink_costs_five_points_at_a_threshold_of_five(self, z: Floats, threshold: float) -> None:
        sinks = int((z > threshold).sum())
        expected = 10.0 if sinks == 0 else max(0.0, 5.0 - 10.0 * sinks / len(z))
        assert formulas.context_health(z, threshold) == pytest.approx(expected)

    def test_density_and_severity_give_the_same(self) -> None:
        density, severity = np.array([0.0, 0.1, 0.2, 1.0]), np.array([0.0, 3.0, 7.0, 9.0])
        assert formulas.health_of_sinks(density, severity).tolist() == [10.0, 6.0, 3.0, 0.0]

    def test_below_five_one_more_weak_sink_can_raise_it(self) -> None:
        few = formulas.context_health(np.array([4.9, 0.0] + [0.0] * 98), 2.0)
        more = formulas.context_health(np.array([4.9, 2.1] + [0.0] * 98), 2.0)
        assert more > few


class TestContextHealthSoft:
    def test_by_hand(self) -> None:
        # Mean 1, excess 4 of a total of 8: half of the attention would have to move.
        assert formulas.context_health_soft(np.array([5.0, 3 / 7] + [3 / 7] * 6)) == pytest.approx(5.0)

    @given(st.integers(8, 200), st.floats(1e-12, 1e6))
    def test_ten_where_all_positions_are_equal(self, n: int, each: float) -> None:
        assert formulas.context_health_soft(np.full(n, each)) == pytest.approx(10.0)

    @given(st.integers(8, 200))
    def test_least_where_one_position_has_it_all(self, n: int) -> None:
        assert formulas.context_health_soft(np.eye(n)[0]) == pytest.approx(10.0 / n)

    @given(arrays(np.float64, st.integers(8, 40), elements=st.floats(0, 1, allow_subnormal=False)))
    def test_stays_in_range(self, attention: Floats) -> None:
        health = formulas.context_health_soft(attention)
        assert health is None if attention.sum() == 0 else health is not None and 0.0 <= health <= 10.0

    @given(attentions, st.data())
    def test_never_rises_when_attention_moves_to_a_heavier_one(self, attention: Floats, data: st.DataObject) -> None:
        indices = st.integers(0, len(attention) - 1)
        ranks = sorted(data.draw(st.lists(indices, min_size=2, max_size=2, unique=True)))
        light, heavy = np.argsort(attention)[ranks]
        amount = data.draw(st.floats(0.0, 1.0)) * attention[light]
        moved = attention.copy()
        moved[light] -= amount
        moved[heavy] += amount
        before, after = formulas.context_health_soft(attention), formulas.context_health_soft(moved)
        assert before is not None
        assert after is not None
        assert after <= before + 1e-9

    @given(attentions, st.floats(0.01, 100))
    def test_a_common_factor_changes_nothing(self, attention: Floats, factor: float) -> None:
        expected = formulas.context_health_soft(attention)
        assert formulas.context_health_soft(attention * factor) == pytest.approx(expected)

    @given(attentions, st.data())
    def test_a_small_change_of_attention_is_a_small_change_of_it(self, attention: Floats, data: st.DataObject) -> None:
        # 10 - 5 * |shares - 1/n|: it moves by at most 5 times what the shares move in all, so it has no jump.
        changed = attention * data.draw(arrays(np.float64, len(attention), elements=st.floats(0.5, 2.0)))
        before, after = formulas.context_health_soft(attention), formulas.context_health_soft(changed)
        assert before is not None
        assert after is not None
        moved = np.abs(attention / attention.sum() - changed / changed.sum()).sum()
        assert abs(after - before) <= 5 * moved + 1e-9

    @given(attentions, st.integers(2, 6))
    def test_more_positions_of_the_same_kind_change_nothing(self, attention: Floats, times: int) -> None:
        longer = formulas.context_health_soft(np.tile(attention, times))
        assert longer == pytest.approx(formulas.context_health_soft(attention))

    def test_not_defined(self) -> None:
        assert formulas.context_health_soft(np.ones(7)) is None
        assert formulas.context_health_soft(np.zeros(20)) is None
        assert formulas.context_health_soft(np.zeros(0)) is None


class TestSinkRate:
    def test_share_of_heads_over_the_limit(self) -> None:
        heads = np.array([[0.1, 0.31], [0.3, 0.9]])
        assert formulas.sink_rate(heads, 16) == 0.5

    def test_not_defined_where_even_uniform_attention_passes(self) -> None:
        # Uniform causal attention to position 0 over S queries is the harmonic mean 1/S * sum 1/i: over 0.3 for few.
        assert formulas.sink_rate(np.ones(4), 15) is None
        assert np.mean(1 / np.arange(1, 8)) > formulas.SINK_RATE_ATTENTION
        assert np.mean(1 / np.arange(1, 17)) < formulas.SINK_RATE_ATTENTION


class TestSpeculativeTheory:
    @pytest.mark.parametrize(("alpha", "gamma", "tokens"), [(0.8, 4, 3.36), (0.6, 4, 2.31), (0.9, 4, 4.10)])
    def test_reference_tokens(self, alpha: float, gamma: int, tokens: float) -> None:
        assert formulas.expected_tokens_per_round(alpha, gamma) == pytest.approx(tokens, abs=0.005)

    @pytest.mark.parametrize(("alpha", "gamma", "speedup"), [(0.392, 4, 0.99), (0.336, 7, 0.71), (0.197, 8, 0.55)])
    def test_reference_speedups(self, alpha: float, gamma: int, speedup: float) -> None:
        assert formulas.expected_speedup(alpha, gamma, 0.1601) == pytest.approx(speedup, abs=0.005)

    @pytest.mark.parametrize(
        ("rate", "gamma", "alpha", "speedup"),
        [(0.392, 4, 0.659, 1.57), (0.336, 7, 0.724, 1.58), (0.488, 6, 0.798, 2.00)],
    )
    def test_the_series_fed_the_formula_with_accepted_per_proposed(
        self, rate: float, gamma: int, alpha: float, speedup: float
    ) -> None:
        assert formulas.alpha_of_acceptance_rate(rate, gamma) == pytest.approx(alpha, abs=0.0005)
        assert formulas.expected_speedup(alpha, gamma, 0.1601) == pytest.approx(speedup, abs=0.005)

    def test_the_alpha_of_an_acceptance_rate_by_hand(self) -> None:
        # (.5 + .25) / 2, and nothing or everything accepted.
        assert formulas.alpha_of_acceptance_rate(0.375, 2) == pytest.approx(0.5)
        assert [formulas.alpha_of_acceptance_rate(rate, 6) for rate in (0.0, 1.0)] == [0.0, 1.0]

    @given(alphas, gammas)
    def test_expected_tokens_are_the_closed_form_within_bounds(self, alpha: float, gamma: int) -> None:
        tokens = formulas.expected_tokens_per_round(alpha, gamma)
        assert 1.0 <= tokens <= gamma + 1
        if alpha < 0.999:
            assert tokens == pytest.approx((1 - alpha ** (gamma + 1)) / (1 - alpha))
        assert formulas.expected_tokens_per_round(1.0, gamma) == gamma + 1
        assert formulas.expected_tokens_per_round(0.0, gamma) == 1.0

    @given(alphas, alphas, gammas)
    def test_expected_tokens_rise_with_alpha_and_gamma(self, one: float, other: float, gamma: int) -> None:
        low, high = sorted((one, other))
        assert formulas.expected_tokens_per_round(low, gamma) <= formulas.expected_tokens_per_round(high, gamma) + 1e-12
        assert formulas.expected_tokens_per_round(low, gamma) <= formulas.expected_tokens_per_round(low, gamma + 1)

    @given(alphas, gammas, cost_ratios)
    def test_the_full_formula_without_other_costs_is_the_plain_one(
        self, alpha: float, gamma: int, cost_ratio: float
    ) -> None:
        plain = formulas.expected_speedup(alpha, gamma, cost_ratio)
        full = formulas.expected_speedup_full(alpha, gamma, cost_ratio, target_efficiency=1.0, overhead_steps=0.0)
        assert full == pytest.approx(plain)
        slower = formulas.expected_speedup_full(alpha, gamma, cost_ratio, target_efficiency=0.8, overhead_steps=0.1)
        assert slower < full

    def test_the_full_formula_by_hand(self) -> None:
        # 3.3616 tokens for 4 draft steps of 0.1, a pass of 1.25 and overhead of 0.35 verifier steps: 2 steps.
        assert formulas.expected_speedup_full(0.8, 4, 0.1, 0.8, 0.35) == pytest.approx(3.3616 / 2.0)

    @given(gammas, cost_ratios)
    def test_breakeven_is_where_the_speedup_is_one(self, gamma: int, cost_ratio: float) -> None:
        alpha = formulas.breakeven_alpha(gamma, cost_ratio)
        if alpha is None:
            assert formulas.expected_speedup(1.0, gamma, cost_ratio) < 1.0
            assert cost_ratio > 1.0
        else:
            assert 0.0 <= alpha <= 1.0
            assert formulas.expected_speedup(alpha, gamma, cost_ratio) == pytest.approx(1.0)

    @given(gammas, st.floats(0.0, 1.0))
    def test_accepted_per_proposed_at_breakeven_is_the_cost_ratio_at_every_gamma(
        self, gamma: int, cost_ratio: float
    ) -> None:
        at_c = formulas.alpha_of_acceptance_rate(cost_ratio, gamma)
        assert formulas.expected_speedup(at_c, gamma, cost_ratio) == pytest.approx(1.0)

    @given(gammas, st.floats(0.01, 0.98))
    def test_a_little_more_than_breakeven_pays(self, gamma: int, cost_ratio: float) -> None:
        alpha = formulas.breakeven_alpha(gamma, cost_ratio)
        assert alpha is not None
        assert formulas.expected_speedup(min(1.0, alpha + 0.01), gamma, cost_ratio) > 1.0
        assert formulas.expected_speedup(max(0.0, alpha - 0.01), gamma, cost_ratio) < 1.0

    def test_breakeven_at_its_ends(self) -> None:
        assert formulas.breakeven_alpha(4, 0.0) == 0.0
        assert formulas.breakeven_alpha(4, 1.0) == 1.0
        assert formulas.breakeven_alpha(4, 1.001) is None
        assert formulas.breakeven_alpha(1, 0.25) == pytest.approx(0.25)  # 1 + alpha = 1 + c


class TestEntropy:
    def test_reference_values(self) -> None:
        assert formulas.entropy_bits(np.array([0.5, 0.5, 0.0])) == 1.0
        assert formulas.entropy_bits(np.full(4, 0.25)) == 2.0
        assert formulas.entropy_bits(np.array([1.0, 0.0])) == 0.0

    @given(arrays(np.float64, st.integers(1, 30), elements=st.floats(0, 1)))
    def test_between_none_and_uniform(self, weights: Floats) -> None:
        assume(weights.sum() > 1e-3)
        entropy = formulas.entropy_bits(weights / weights.sum())
        assert -1e-9 <= entropy <= math.log2(len(weights)) + 1e-9


def test_rates_that_are_not_defined() -> None:
    assert formulas.ratio_or_none(0, 0) is None
    assert formulas.ratio_or_none(3, 4) == 0.75
    assert formulas.mean_or_none([]) is None
    assert formulas.mean_or_none(np.zeros(0)) is None
    assert formulas.mean_or_none([1.0, 2.0]) == 1.5
