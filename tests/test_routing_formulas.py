"""Routing mathematics against values worked out by hand and processes with a closed form."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specstudy import routing_formulas as routing
from specstudy.routing_formulas import Floats


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


def stationary(popularity: Floats, coactivation: Floats) -> Floats:
    """Fitted joints [N, 2^W] where P(on) [N] is the same for every token and P(both on) [W - 1, N] hangs on the gap."""
    window = len(coactivation) + 1
    pairs = {(a, b): coactivation[b - a - 1] for a, b in itertools.combinations(range(window), 2)}
    joint, distance = routing.fit_pairs(np.tile(popularity, (window, 1)), pairs, 1e-12, 2000)
    assert distance.max() < 1e-12
    return joint


def test_equal_popularity_gives_the_uniform_baseline() -> None:
    popularity = np.full(16, 4 / 16)
    for window in (1, 3, 8):
        expected = routing.expected_distinct_uniform(16, 4, window)
        assert routing.expected_distinct_independent(popularity, window) == pytest.approx(expected)
        joint = stationary(popularity, np.tile(popularity**2, (window - 1, 1)))
        assert (1 - joint[:, 0]).sum() == pytest.approx(expected)


def test_an_expert_that_never_changes_is_counted_once() -> None:
    popularity = np.array([0.3, 0.7])
    assert (1 - stationary(popularity, np.tile(popularity, (3, 1)))[:, 0]).sum() == pytest.approx(1.0)


@settings(max_examples=30)
@given(p=st.floats(0.05, 0.95), stay=st.floats(0.05, 0.95))
def test_three_tokens_of_a_markov_chain_follow_from_their_pairs_only_if_the_far_pair_is_given(
    p: float, stay: float
) -> None:
    """A chain with P(on) = p; its joint has no interaction beyond neighbours, so maximum entropy recovers it."""
    # P(on | on) = p + stay (1 - p), P(on | off) = p (1 - stay): correlation stay^gap.
    gaps = np.array([[p * p + p * (1 - p) * stay**gap] for gap in (1, 2)])
    off_off = 1 - p + stay * p
    assert stationary(np.array([p]), gaps)[0, 0] == pytest.approx((1 - p) * off_off**2, abs=1e-9)


def test_six_tokens_of_a_chain_and_marginals_of_the_fit() -> None:
    p, stay, window = 0.2, 0.6, 6
    gaps = np.array([[p * p + p * (1 - p) * stay**gap] for gap in range(1, window)])
    joint = stationary(np.array([p]), gaps)[0]
    on = (np.arange(2**window)[:, None] >> np.arange(window)) & 1
    np.testing.assert_allclose(joint @ on, p, atol=1e-9)
    np.testing.assert_allclose(joint @ (on[:, 1] * on[:, 4]), gaps[2, 0], atol=1e-9)
    assert joint[0] == pytest.approx((1 - p) * (1 - p + stay * p) ** (window - 1), abs=1e-9)


def test_pairs_of_one_window_agree_with_each_other() -> None:
    """On at the ends alone: averaged over the tokens, P(on) is a third, and P(both on at a gap of five) is one."""
    used = np.zeros((6, 1), dtype=bool)
    used[[0, 5]] = True
    never, distance = routing.never_on_in_windows(used[None], 1e-9, 100)
    assert never[0] == pytest.approx(0.0, abs=1e-9)
    assert distance[0] < 1e-9


def test_pairs_that_no_process_has_are_told_by_their_distance() -> None:
    """Tokens 0 and 1 are always on together, so are 1 and 2, but 0 and 2 never."""
    both = {(0, 1): np.array([0.5]), (1, 2): np.array([0.5]), (0, 2): np.array([0.0])}
    _, distance = routing.fit_pairs(np.full((3, 1), 0.5), both, 1e-9, 100)
    assert distance[0] > 0.05


def test_windows_of_three_tokens_by_hand() -> None:
    """Of the four states of even parity pairs tell nothing: maximum entropy spreads over all eight."""
    even = np.array([[0, 0, 0], [1, 1, 0], [1, 0, 1], [0, 1, 1]], dtype=bool)[:, :, None]
    never, _ = routing.never_on_in_windows(even, 1e-12, 100)
    assert never[0] == pytest.approx(1 / 8)
    # With pairs that decide the joint, the prediction is what was measured.
    nested = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]], dtype=bool)[:, :, None]
    never, _ = routing.never_on_in_windows(nested, 1e-9, 5000)
    assert never[0] == pytest.approx(1 / 4, abs=1e-6)


def test_balance() -> None:
    assert routing.load_variation(np.array([0.25, 0.25, 0.25])) == 0.0
    assert routing.load_variation(np.array([0.0, 0.5])) == pytest.approx(1.0)
    even = np.full(4, 0.25)
    assert routing.switch_balance(even, even) == pytest.approx(1.0)
    assert routing.switch_balance(np.array([1.0, 0, 0, 0]), np.array([0.7, 0.1, 0.1, 0.1])) == pytest.approx(2.8)
    assert routing.overlap_by_popularity(np.array([0.5, 0.5, 1.0])) == pytest.approx(1.5 / 2.0)
    rows = np.array([[0.5, 0.5, 1.0], [1.0, 0.0, 0.0]])
    np.testing.assert_allclose(routing.overlap_by_popularity(rows), [0.75, 1.0])
    np.testing.assert_allclose(routing.load_variation(rows), [np.sqrt(1 / 8), np.sqrt(2)])


def test_gate_entropy() -> None:
    np.testing.assert_allclose(routing.gate_entropy_bits(np.array([[0.25] * 4, [1, 0, 0, 0]])), [2.0, 0.0])


def test_bytes() -> None:
    """Two layers of three experts: one is on for sure and one half of the time; all are on in the other layer."""
    on = np.array([[1.0, 0.5, 0.0], [1.0, 1.0, 1.0]])
    assert routing.bytes_read(10.0, np.array([2.0, 4.0]), on) == 10 + 3 + 12
    assert routing.bytes_read(10.0, np.array([2.0, 4.0]), np.stack([on, 0 * on])).tolist() == [25, 10]
