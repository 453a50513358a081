"""Partial rank correlations inside answers, against residuals by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from specstudy.analysis.writing import partial
from specstudy.analysis.writing.partial import FEWEST_STEPS, Answer, coefficients, partial_spearman

N = 40


def measured(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three x, two y, with ties, and what is held: a continuous covariate behind all of them, and two dummies."""
    rng = np.random.default_rng(seed)
    held = np.column_stack([rng.normal(size=N), rng.random(N) < 0.3, rng.random(N) < 0.5]).astype(float)
    x = np.round(rng.normal(size=(N, 3)) + held[:, :1], 1)
    y = rng.normal(size=(N, 2)) + held[:, :1] ** 3 + x[:, :1]
    return x, y, held


def by_hand(x: np.ndarray, y: np.ndarray, held: np.ndarray) -> float:
    """Ranks; residuals of ordinary least squares on ranked covariates and dummies; their correlation."""
    ranked = [stats.rankdata(values) for values in (x, y)]
    design = np.column_stack([np.ones(len(x)), stats.rankdata(held[:, 0]), held[:, 1:]])
    rests = [values - design @ np.linalg.lstsq(design, values, rcond=None)[0] for values in ranked]
    return float(np.corrcoef(*rests)[0, 1])


def test_it_is_the_correlation_of_what_least_squares_leaves() -> None:
    x, y, held = measured()
    (found,) = partial_spearman(x, y, held, np.zeros(0, dtype=np.intp))
    expected = [[by_hand(a, b, held) for b in y.T] for a in x.T]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert abs(expected[0][0]) > 0.4


def test_a_shift_turns_x_as_on_a_ring_and_leaves_y_and_what_is_held() -> None:
    x, y, held = measured(1)
    found = partial_spearman(x, y, held, np.array([3, 17]))
    for turned, places in zip(found, (0, 3, 17), strict=True):
        expected = [[by_hand(np.roll(a, places), b, held) for b in y.T] for a in x.T]
        np.testing.assert_allclose(turned, expected, atol=1e-12)


def test_a_hand_worked_answer() -> None:
    """Four tokens, a trend held: x = trend + (1, -1, -1, 1), y = trend - (1, -1, -1, 1): opposite once it is gone."""
    x, y = np.array([[2.0, 1.0, 3.0, 4.0]]).T, np.array([[1.0, 3.0, 2.0, 4.0]]).T
    # Ranks 2 1 3 4 leave .7 -.9 .3 -.1 ... of the line through them; ranks 1 3 2 4 leave -.3 .9 -.9 .3.
    trend = np.arange(4.0)[:, None]
    (found,) = partial_spearman(x, y, trend, np.zeros(0, dtype=np.intp))
    rest_x, rest_y = np.array([0.7, -1.1, 0.1, 0.3]), np.array([-0.3, 0.9, -0.9, 0.3])
    expected = rest_x @ rest_y / np.sqrt((rest_x @ rest_x) * (rest_y @ rest_y))
    assert found[0, 0] == pytest.approx(expected)


def test_what_does_not_vary_beyond_what_is_held_has_no_coefficient() -> None:
    x, y, held = measured()
    x[:, 0], x[:, 1] = 0.5, np.exp(held[:, 0])
    (found,) = partial_spearman(x, y, held, np.zeros(0, dtype=np.intp))
    assert np.isnan(found[:2]).all()
    assert np.isfinite(found[2]).all()


def test_kinds_that_an_answer_lacks_take_no_part() -> None:
    x, y, held = measured()
    held[:, 1], held[:, 2] = 0.0, 1.0
    (found,) = partial_spearman(x, y, held, np.zeros(0, dtype=np.intp))
    (alone,) = partial_spearman(x, y, held[:, :1], np.zeros(0, dtype=np.intp))
    np.testing.assert_allclose(found, alone, atol=1e-12)


def test_tokens_without_a_measure_are_left_out_of_its_coefficients_alone() -> None:
    x, y, held = measured()
    gaps = x.copy()
    gaps[[0, 5], 1] = np.nan
    found = coefficients([Answer("a", 0, gaps, y, held)], (3, 2), 0)
    whole = partial_spearman(x, y, held, np.zeros(0, dtype=np.intp))[0]
    without = np.delete(np.arange(N), [0, 5])
    np.testing.assert_allclose(found.found[0, [0, 2]], whole[[0, 2]])
    expected = partial_spearman(x[without], y[without], held[without], np.zeros(0, dtype=np.intp))
    np.testing.assert_allclose(found.found[0, 1], expected[0, 1])


def test_answers_are_averaged_within_prompts_and_short_ones_have_no_coefficient() -> None:
    answers = []
    for prompt_id, repetition, n in (("b", 0, N), ("a", 0, N), ("a", 1, N), ("a", 2, FEWEST_STEPS - 1)):
        parts = measured(seed=len(answers))
        answers.append(Answer(prompt_id, repetition, *(part[:n] for part in parts)))
    found = coefficients(answers, (3, 2), 0, 5)
    alone = [coefficients([answer], (3, 2), 0, 5) for answer in answers]
    assert found.prompt_ids == ["a", "b"]
    assert np.isnan(alone[3].found).all()
    assert (found.n_answers == 3).all()
    for name in ("found", "shifted"):
        parts = [getattr(each, name)[0] for each in alone]
        np.testing.assert_allclose(getattr(found, name), [(parts[1] + parts[2]) / 2, parts[0]])


def test_a_shift_is_far_from_either_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 40 tokens at least 5 either way."""
    drawn: list[int] = []

    def noting(x: np.ndarray, y: np.ndarray, held: np.ndarray, shifts: np.ndarray) -> np.ndarray:
        drawn.extend(shifts)
        return partial_spearman(x, y, held, shifts)

    monkeypatch.setattr(partial, "partial_spearman", noting)
    coefficients([Answer("a", 0, *measured())], (3, 2), 0, 400)
    assert (min(drawn), max(drawn), len(drawn)) == (5, 35, 400)


def test_shifts_depend_on_the_answer_and_the_seed_alone() -> None:
    answers = [Answer(name, 0, *measured(seed)) for seed, name in enumerate("abc")]
    both = coefficients(answers, (3, 2), 0, 8)
    np.testing.assert_array_equal(coefficients(answers[1:], (3, 2), 0, 8).shifted, both.shifted[1:])
    assert (coefficients(answers, (3, 2), 1, 8).shifted != both.shifted).all()
