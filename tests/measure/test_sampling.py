"""Entropy, warping, draws and the accept rule on small arrays worked out by hand, and their properties."""

import math
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from scipy import stats

from specstudy.measure import sampling
from specstudy.measure.sampling import Warp

INFINITY = math.inf
logit_rows = st.lists(
    st.lists(st.one_of(st.floats(-30, 30, width=32), st.just(-INFINITY)), min_size=6, max_size=6).filter(
        lambda row: max(row) > -INFINITY
    ),
    min_size=1,
    max_size=4,
)


def dense(logits, *warp):
    """The warped distributions over all ids."""
    return sampling.warp(logits, Warp(*warp)).dense(logits.shape[-1])


def drawn(weights, uniforms):
    """Draws from weights over the ids 0, 1, 2, ..."""
    return sampling.draw(torch.arange(weights.shape[-1]).expand(len(weights), -1), weights, uniforms)


def tensor(rows):
    return torch.tensor(rows, dtype=torch.float32)


@pytest.mark.parametrize(
    ("logits", "bits"),
    [
        ([0.0, 0.0, -INFINITY], 1.0),
        ([0.0, 0.0, 0.0, 0.0], 2.0),
        ([7.0, -INFINITY, -INFINITY], 0.0),
        ([math.log(0.5), math.log(0.25), math.log(0.25)], 1.5),
        ([1000.0, 1000.0], 1.0),
    ],
)
def test_entropy_in_bits(logits, bits):
    raw = sampling.raw_statistics(tensor([logits]))
    assert raw.entropy_bits.item() == pytest.approx(bits, abs=1e-6)
    assert bool(raw.finite)
    assert sampling.warp(tensor([logits]), Warp(1.0, 1.0)).entropy_bits().item() == pytest.approx(bits, abs=1e-6)


@pytest.mark.parametrize("bad", [math.nan, INFINITY])
def test_bad_logits_are_flagged_and_a_masked_id_is_not(bad):
    flags = sampling.raw_statistics(tensor([[0.0, bad, 1.0], [0.0, -INFINITY, 1.0], [-INFINITY] * 3])).finite
    assert flags.tolist() == [False, True, False]


def test_a_large_vocabulary_with_a_flat_tail_costs_no_precision():
    """The normaliser of torch's own softmax is off by 1e-4 here."""
    tail = torch.rand(4, 151_936, generator=torch.Generator().manual_seed(0)) < 0.78
    logits = torch.where(tail, -5.0, -60.0)
    logits[:, 7] = 0.0
    exact = logits.double().softmax(-1)
    raw = sampling.raw_statistics(logits)
    expected_bits = -(exact * exact.log2()).sum(-1)
    np.testing.assert_allclose(raw.entropy_bits.numpy(), expected_bits.numpy(), atol=5e-6)
    np.testing.assert_allclose(raw.log_normalizer.numpy(), logits.double().logsumexp(-1).numpy(), atol=2e-6)
    warped = sampling.warp(logits, Warp(1.0, 1.0)).probabilities
    np.testing.assert_allclose(warped.numpy(), exact.numpy(), rtol=2e-6)


@given(logit_rows)
def test_entropy_agrees_with_scipy(rows):
    logits = tensor(rows)
    expected = [stats.entropy(torch.softmax(row.double(), -1).numpy(), base=2) for row in logits]
    np.testing.assert_allclose(sampling.raw_statistics(logits).entropy_bits.numpy(), expected, atol=2e-5)


@given(logit_rows)
def test_the_two_largest_probabilities(rows):
    logits = tensor(rows)
    found = sampling.top_two(logits, sampling.raw_statistics(logits).log_normalizer)
    expected = np.sort(torch.softmax(logits.double(), -1).numpy())[:, ::-1][:, :2].T
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-5)


@settings(max_examples=200)
@given(st.sampled_from([33, 47, 64, 100, 161]), st.sampled_from([1, 2, 3, 5, 10]), st.data())
def test_the_largest_are_those_of_topk(n, k, data):
    few_values = st.sampled_from([-INFINITY, -3.0, 0.0, 0.5, 2.0])
    values = tensor(data.draw(st.lists(st.lists(few_values, min_size=n, max_size=n), min_size=1, max_size=3)))
    with patch.object(sampling, "FEW", 0):
        top, ids = sampling.largest(values, k)
    assert torch.equal(top, values.topk(k).values)
    assert torch.equal(values.gather(-1, ids), top)
    assert all(len(set(row)) == k for row in ids.tolist())


def test_accept_rule_and_residual_by_hand():
    p, q = tensor([[0.3, 0.5, 0.2]]), tensor([[0.6, 0.3, 0.1]])
    assert sampling.acceptance_probability(tensor([0.3]), tensor([0.6])).item() == pytest.approx(0.5)
    assert sampling.acceptance_probability(tensor([0.5]), tensor([0.3])).item() == 1.0
    rest = sampling.residual(p, q)
    torch.testing.assert_close(rest / rest.sum(), tensor([[0.0, 2 / 3, 1 / 3]]))
    assert sampling.expected_acceptance(p, q).item() == pytest.approx(0.3 + 0.3 + 0.1)


def test_a_residual_of_nothing_but_rounding_is_the_verifiers_own():
    p = tensor([[0.0, 0.5, 0.5]])
    q = tensor([[0.0, 0.5, 0.5]])
    p[0, 0] = 3e-45
    torch.testing.assert_close(sampling.residual(p, q), p)


def test_residual_of_equal_distributions_is_the_verifiers_own():
    p = tensor([[0.3, 0.5, 0.2]])
    torch.testing.assert_close(sampling.residual(p, p), p)


def test_nucleus_by_hand():
    logits = tensor([[math.log(0.5), math.log(0.3), math.log(0.15), math.log(0.05)]])
    kept = dense(logits, 1.0, 0.8)
    torch.testing.assert_close(kept, tensor([[0.625, 0.375, 0.0, 0.0]]))
    just_more = dense(logits, 1.0, 0.81)
    torch.testing.assert_close(just_more, tensor([[0.5, 0.3, 0.15, 0.0]]) / 0.95)
    assert dense(logits, 1.0, 1e-8).tolist() == [[1.0, 0.0, 0.0, 0.0]]
    assert dense(logits, 0.0, 0.5).tolist() == [[1.0, 0.0, 0.0, 0.0]]
    assert dense(logits, 0.5, 1.0)[0, 0].item() == pytest.approx(0.25 / 0.365)


N_IDS = 40
# Few different values: in 16-bit precision many ids are equally likely.
tied_rows = st.lists(
    st.lists(st.sampled_from([-INFINITY, -2.0, 0.0, 0.125, 1.0, 3.0]), min_size=N_IDS, max_size=N_IDS).filter(
        lambda row: max(row) > -INFINITY
    ),
    min_size=1,
    max_size=3,
)
temperatures = st.sampled_from([0.01, 0.3, 0.7, 1.0, 2.0])
top_ps = st.one_of(st.sampled_from([1e-8, 0.25, 0.5, 0.9, 0.999, 1 - 2**-24]), st.floats(1e-8, 1, exclude_max=True))


def sorted_nucleus(probabilities, top_p):
    """One row by sorting everything: likeliest first, of equal ones the lower id."""
    order = np.lexsort((np.arange(len(probabilities)), -probabilities))
    cumulative = np.cumsum(probabilities[order], dtype=np.float64).astype(np.float32)
    n_kept = min(int((cumulative < np.float32(top_p)).sum()) + 1, len(order))
    nucleus = np.zeros_like(probabilities)
    nucleus[order[:n_kept]] = probabilities[order[:n_kept]] / cumulative[n_kept - 1]
    return nucleus


@settings(max_examples=300)
@given(tied_rows, temperatures, top_ps)
def test_the_nucleus_is_that_of_a_full_sort_ties_included(rows, temperature, top_p):
    logits = tensor(rows)
    found = dense(logits, temperature, top_p, None)
    for row, logits_of_row in zip(found, logits, strict=True):
        expected = sorted_nucleus(torch.softmax(logits_of_row / temperature, -1).numpy(), top_p)
        np.testing.assert_array_equal(row.numpy(), expected)


@settings(max_examples=300)
@given(tied_rows, temperatures, top_ps, st.sampled_from([1, 2, 5, 20, N_IDS - 1]))
def test_few_candidates_give_exactly_the_same_or_say_that_they_cannot(rows, temperature, top_p, candidates):
    logits = tensor(rows)
    full = sampling.warp(logits, Warp(temperature, top_p, None))
    few = sampling.warp(logits, Warp(temperature, top_p, candidates))
    assert bool(full.complete.all())
    for row, p in enumerate(torch.softmax(logits / temperature, -1)):
        nucleus = full.dense(N_IDS)[row]
        if few.complete[row]:
            assert torch.equal(few.dense(N_IDS)[row], nucleus)
        else:
            too_little = p.sort(descending=True).values.cumsum(0)[candidates - 1] < top_p
            assert too_little or int((p >= p[nucleus > 0].min()).sum()) >= candidates
    torch.testing.assert_close(full.probabilities.sum(-1), torch.ones(len(rows)))


def test_candidates_that_hold_the_nucleus_are_enough():
    logits = torch.arange(100.0)[None]
    assert sampling.warp(logits, Warp(1.0, 0.9, 10)).complete.tolist() == [True]


def test_equal_ids_do_not_fit_into_fewer_candidates():
    flat = torch.zeros(1, 100)
    assert sampling.warp(flat, Warp(1.0, 0.9, 10)).complete.tolist() == [False]
    # The nucleus is the five lowest ids, but which five of the hundred are among ten candidates is not told.
    assert sampling.warp(flat, Warp(1.0, 0.045, 10)).complete.tolist() == [False]
    assert dense(flat, 1.0, 0.045, None).nonzero()[:, 1].tolist() == [0, 1, 2, 3, 4]


def test_candidates_widen_by_steps_up_to_all():
    steps = [Warp(0.7, 0.9)]
    while steps[-1].candidates is not None:
        steps.append(steps[-1].widened())
    assert [warp.candidates for warp in steps] == [*sampling.WIDTHS, None]
    assert steps[-1].widened() == Warp(0.7, 0.9, None)
    assert Warp(0.7, 0.9, 4).widened() == steps[0]


@given(
    st.lists(st.floats(0, 1, width=32), min_size=2, max_size=20).filter(lambda w: sum(w) > 1e-3),
    st.floats(0, 1, exclude_max=True, width=32),
)
def test_a_draw_never_has_weight_zero(weights, uniform):
    assert weights[int(drawn(tensor([weights]), torch.tensor([uniform], dtype=torch.float32)))] > 0


@pytest.mark.parametrize("total", [1.0, 1.0 + 2**-23, 1.5, 2.0 - 2**-23, 3e-30])
def test_the_largest_uniform_draws_the_last_id_that_has_weight(total):
    largest_uniform = torch.tensor([1.0 - 2**-24])
    assert int(drawn(tensor([[0.0, total, 0.0, 0.0]]), largest_uniform)) == 1
    assert int(drawn(tensor([[total / 2, 0.0, total / 2, 0.0]]), largest_uniform)) == 2


def test_probabilities_are_looked_up_by_id():
    warped = sampling.warp(tensor([[0.0, 2.0, 1.0, -5.0], [3.0, 0.0, 0.0, 0.0]]), Warp(1.0, 0.8))
    assert warped.ids.tolist() == [[0, 1, 2, 3]] * 2
    torch.testing.assert_close(warped.at(torch.tensor([1, 2])), torch.stack([warped.dense(4)[0, 1], tensor(0.0)]))


def test_draw_is_the_inverse_of_the_cumulative_distribution():
    weights = tensor([[0.2, 0.0, 0.5, 0.3]]).repeat(6, 1)
    uniforms = torch.tensor([0.0, 0.19, 0.21, 0.69, 0.71, 1 - 2**-24])
    assert drawn(weights, uniforms).tolist() == [0, 0, 2, 2, 3, 3]


@given(st.integers(0, 2**32 - 1))
def test_drawn_frequencies_follow_the_weights(seed):
    # Chi-square over 4000 draws; false alarm 1e-6 an example.
    weights = torch.tensor([1.0, 2.0, 0.0, 3.0, 4.0])
    uniforms = torch.from_numpy(np.random.default_rng(seed).random(4000, dtype=np.float32))
    counts = torch.bincount(drawn(weights.expand(4000, -1), uniforms), minlength=5).numpy()
    assert counts[2] == 0
    kept = [0, 1, 3, 4]
    assert stats.chisquare(counts[kept], 4000 * weights.numpy()[kept] / 10).pvalue > 1e-6
