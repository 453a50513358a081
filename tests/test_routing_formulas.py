"""Routing mathematics against values worked out by hand and processes with a closed form."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specstudy import routing_formulas as routing


def test_gates_of_the_two_largest_scores() -> None:
    chosen, gates = routing.top_k_gates(np.array([2.0, 0.5, 1.5, -1.0]), 2)
    assert chosen.tolist() == [0, 2]
    np.testing.assert_allclose(gates, [0.622, 0.378], atol=5e-4)
    np.testing.assert_allclose(gates @ np.array([[1.0, 0.2], [0.4, 0.8]]), [0.773, 0.427], atol=5e-4)


def test_parameters_of_a_layer() -> None:
    size = routing.ExpertLayerSize(64, 256, n_experts=8, n_chosen=2, n_matrices=2, biases=True)
    assert size.total == 265_216
    assert size.active == 66_688


def test_uniform_baseline() -> None:
    assert routing.expected_distinct_uniform(128, 8, 4) == pytest.approx(29.1, abs=0.05)
    assert routing.expected_distinct_uniform(8, 2, 1) == pytest.approx(2.0)


def test_distinct_experts_of_windows_by_hand() -> None:
    used = routing.on_off(np.array([[0, 1], [1, 2], [1, 2], [3, 0]]), 4)
    assert routing.distinct_experts(used, 1).tolist() == [2, 2, 2, 2]
    assert routing.distinct_experts(used, 2).tolist() == [3, 2, 4]
    assert routing.distinct_experts(used, 3).tolist() == [3, 4]
    assert routing.distinct_experts(used, 5).tolist() == []
    assert routing.overlap_with_previous(used).tolist() == [0.5, 1.0, 0.0]


def test_equal_popularity_gives_the_uniform_baseline() -> None:
    popularity = np.full(16, 4 / 16)
    for window in (1, 3, 8):
        expected = routing.expected_distinct_uniform(16, 4, window)
        assert routing.expected_distinct_independent(popularity, window) == pytest.approx(expected)
        independent = np.tile(popularity**2, (window - 1, 1))
        assert routing.expected_distinct_pairwise(popularity, independent) == pytest.approx(expected)


def test_an_expert_that_never_changes_is_counted_once() -> None:
    popularity = np.array([0.3, 0.7])
    assert routing.expected_distinct_pairwise(popularity, np.tile(popularity, (3, 1))) == pytest.approx(1.0)


@settings(deadline=None, max_examples=30)
@given(p=st.floats(0.05, 0.95), stay=st.floats(0.05, 0.95))
def test_three_tokens_of_a_markov_chain_follow_from_their_pairs_only_if_the_far_pair_is_given(
    p: float, stay: float
) -> None:
    """A chain with P(on) = p; its joint has no interaction beyond neighbours, so maximum entropy recovers it."""
    # P(on | on) = p + stay (1 - p), P(on | off) = p (1 - stay): correlation stay^gap.
    gaps = np.array([[p * p + p * (1 - p) * stay**gap] for gap in (1, 2)])
    off_off = 1 - p + stay * p
    assert routing.never_on(np.array([p]), gaps)[0] == pytest.approx((1 - p) * off_off**2, abs=1e-9)


def test_six_tokens_of_a_chain_and_marginals_of_the_fit() -> None:
    p, stay, window = 0.2, 0.6, 6
    gaps = np.array([[p * p + p * (1 - p) * stay**gap] for gap in range(1, window)])
    joint = routing.joint_on_off(np.array([p]), gaps)[0]
    on = (np.arange(2**window)[:, None] >> np.arange(window)) & 1
    np.testing.assert_allclose(joint @ on, p, atol=1e-9)
    np.testing.assert_allclose(joint @ (on[:, 1] * on[:, 4]), gaps[2, 0], atol=1e-9)
    assert joint[0] == pytest.approx((1 - p) * (1 - p + stay * p) ** (window - 1), abs=1e-9)


def test_pairs_of_windows_agree_with_each_other_where_those_of_the_sequence_do_not() -> None:
    """On at the ends alone: twice in six tokens, and both at a gap of five, of which there is one pair."""
    used = np.zeros((6, 1), dtype=bool)
    used[[0, 5]] = True
    with pytest.raises(ValueError, match="on twice more often than once"):
        routing.joint_on_off(routing.popularity_of(used), routing.coactivation_of(used, 6))
    never, distance = routing.never_on_in_windows(used[None], 1e-9, 100)
    assert never[0] == pytest.approx(0.0, abs=1e-9)
    assert distance[0] < 1e-9


def test_windows_of_three_tokens_by_hand() -> None:
    """Of the four states of even parity pairs tell nothing: maximum entropy spreads over all eight."""
    even = np.array([[0, 0, 0], [1, 1, 0], [1, 0, 1], [0, 1, 1]], dtype=bool)[:, :, None]
    never, _ = routing.never_on_in_windows(even, 1e-12, 100)
    assert never[0] == pytest.approx(1 / 8)
    # With pairs that decide the joint, the prediction is what was measured.
    nested = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]], dtype=bool)[:, :, None]
    never, _ = routing.never_on_in_windows(nested, 1e-9, 5000)
    assert never[0] == pytest.approx(1 / 4, abs=1e-6)


def test_impossible_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="on twice more often than once"):
        routing.joint_on_off(np.array([0.2]), np.array([[0.3]]))
    with pytest.raises(ValueError, match="less often than its popularity forces"):
        routing.joint_on_off(np.array([0.8]), np.array([[0.5]]))


def test_measured_pairs_of_a_sequence() -> None:
    used = np.array([[1, 0], [1, 1], [0, 1], [1, 0]], dtype=bool)
    np.testing.assert_allclose(routing.popularity_of(used), [0.75, 0.5])
    np.testing.assert_allclose(routing.coactivation_of(used, 3), [[1 / 3, 1 / 3], [0.5, 0.0]])
    assert routing.coactivation_of(used, 1).shape == (0, 2)


def test_balance() -> None:
    assert routing.load_variation(np.array([0.25, 0.25, 0.25])) == 0.0
    assert routing.load_variation(np.array([0.0, 0.5])) == pytest.approx(1.0)
    even = np.full(4, 0.25)
    assert routing.switch_balance(even, even) == pytest.approx(1.0)
    assert routing.switch_balance(np.array([1.0, 0, 0, 0]), np.array([0.7, 0.1, 0.1, 0.1])) == pytest.approx(2.8)
    assert routing.overlap_by_popularity(np.array([0.5, 0.5, 1.0])) == pytest.approx(1.5 / 2.0)


def test_gate_entropy() -> None:
    np.testing.assert_allclose(routing.gate_entropy_bits(np.array([[0.25] * 4, [1, 0, 0, 0]])), [2.0, 0.0])


def test_bytes() -> None:
    one, window = np.array([2.0, 2.0]), np.array([3.0, 5.0])
    assert routing.bytes_read(10.0, 2.0, window) == 26.0
    assert routing.target_efficiency_by_bytes(10.0, 2.0, one, window) == pytest.approx(18 / 26)


def test_cohens_d() -> None:
    assert routing.cohens_d(np.array([1.0, 3.0]), np.array([0.0, 2.0])) == pytest.approx(1 / np.sqrt(2))
    assert routing.cohens_d(np.array([1.0]), np.array([0.0, 2.0])) is None
    assert routing.cohens_d(np.array([1.0, 1.0]), np.array([1.0, 1.0])) is None
