"""The soft score under the null that keeps what attention is like at each distance from the prompt's end."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sink_tables import by, prompt_tables

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.sinks import length
from specstudy.analysis.sinks.length import ScoredAttention
from specstudy.analysis.sinks.positions import position_frame
from specstudy.records import SinkAnswer

FAST = AnalysisSettings(bootstrap_samples=200)
LENGTHS = (20, 24, 28, 32, 102, 110, 118, 260, 350, 440)
# By hand: places 0 and 1 in both prompts, place 2 in the second alone.
PLACES = np.array([1, 0, 2, 1, 0])
BY_HAND = ScoredAttention(np.array([4.0, 2.0, 6.0, 2.0, 1.0]), np.array([2, 3]), np.arange(2), PLACES)


def answers(scored: ScoredAttention, settings: AnalysisSettings = FAST) -> list[SinkAnswer]:
    drawn = length.simulated_scores(scored, settings)
    return length.length_answers(length.soft_scores(scored, drawn, settings), drawn, settings)


def study(rng: np.random.Generator, spread_by_length: float = 0.0, repeats: int = 5) -> ScoredAttention:
    """Attention that falls with the distance, of prompts that differ in level and in spread; `spread_by_length`: how
    much wider the spread is in the longest prompts than in none."""
    attention, distances = [], []
    for n in LENGTHS * repeats:
        distance = np.arange(n)[::-1] + 16
        spread = 0.5 + 0.2 * rng.random() + spread_by_length * n / max(LENGTHS)
        level = np.exp(0.3 * rng.normal()) / n
        attention.append(level * distance**-0.5 * np.exp(spread * rng.normal(size=n)))
        distances.append(distance)
    sizes = np.array(LENGTHS * repeats)
    places = length.steps(np.concatenate(distances))
    return ScoredAttention(np.concatenate(attention), sizes, np.arange(len(sizes)), places)


def test_the_scores_are_those_of_prefill() -> None:
    z = [list(np.random.default_rng(i).normal(size=20)) for i in range(3)]
    scored = length.scored_attention(position_frame(prompt_tables(z, window=8)))
    expected = [10 * (1 - np.maximum(v - v.mean(), 0).sum() / v.sum()) for v in (np.exp(np.array(y[:17])) for y in z)]
    assert scored.sizes.tolist() == [17, 17, 17]
    assert length.scores_of(scored.attention, scored.sizes).tolist() == pytest.approx(expected)


def test_prompts_under_eight_scored_positions_are_left_out() -> None:
    frame = position_frame(prompt_tables([[0.0] * 9, list(np.arange(14.0))], window=8))
    assert length.scored_attention(frame).sizes.tolist() == [11]


def test_steps_are_of_near_distances_finer() -> None:
    steps = length.steps(np.arange(16, 500))
    assert (np.diff(steps) >= 0).all()
    assert (steps.min(), steps.max()) == (0, length.N_PLACES - 1)
    sizes = np.bincount(steps)
    assert sizes[0] < 10 < 50 < sizes[-1]


def test_levels_are_what_prompts_differ_by_at_the_same_places() -> None:
    # The first prompt has twice the attention of the second at both places that they share.
    first, second = length.levels(BY_HAND)
    assert first / second == pytest.approx(2.0)


def test_attention_is_exchanged_between_equal_places_only() -> None:
    scaled = BY_HAND.attention / np.array([2.0, 2.0, 1.0, 1.0, 1.0])
    for seed in range(20):
        dealt = length.exchanged(scaled, BY_HAND.places, np.random.default_rng(seed))
        assert dealt.tolist() == [2.0, 1.0, 6.0, 2.0, 1.0]
    drawn = (length.exchanged(np.arange(5.0), BY_HAND.places, np.random.default_rng(seed)) for seed in range(40))
    assert {tuple(dealt) for dealt in drawn} == {(a, b, 2, 3 - a, 5 - b) for a in (0, 3) for b in (1, 4)}


def test_scores_by_hand() -> None:
    # 4, 2: 1 of 6 would have to move; 6, 2, 1: 3 of 9.
    assert length.scores_of(BY_HAND.attention, BY_HAND.sizes).tolist() == pytest.approx([10 * 5 / 6, 10 * 6 / 9])


def test_place_alone_makes_a_correlation_with_length_and_the_null_has_it_too() -> None:
    observed, by_place, beyond = answers(study(np.random.default_rng(0)))
    assert observed.ci_high < 0
    assert by_place.ci_low < observed.estimate < by_place.ci_high < -0.1
    assert beyond.ci_low < 0 < beyond.ci_high


def test_a_planted_effect_of_length_is_found_beyond_place() -> None:
    rows = answers(study(np.random.default_rng(0), spread_by_length=0.4))
    assert by(rows, quantity=length.BEYOND).ci_high < 0


def test_prompts_of_one_length_have_no_correlation_and_say_why() -> None:
    attention = np.random.default_rng(0).random(200)
    rows = answers(ScoredAttention(attention, np.full(10, 20), np.arange(10), np.tile(np.arange(20), 10)))
    assert [r.estimate for r in rows] == [None, None, None]
    assert all("is constant (20)" in r.null_reason for r in rows)


def test_nothing_measured_gives_nothing() -> None:
    nothing = ScoredAttention(np.zeros(0), *(np.zeros(0, dtype=np.intp) for _ in range(3)))
    assert all(r.estimate is None and r.null_reason for r in answers(nothing))


@pytest.mark.long
def test_place_alone_is_called_an_effect_of_length_in_one_of_twenty_studies() -> None:
    n, settings = 200, AnalysisSettings(bootstrap_samples=500)
    found = 0
    for seed in range(n):
        scored = study(np.random.default_rng([seed, 2024]), repeats=3)
        drawn = length.simulated_scores(scored, settings, most=30)
        beyond = length.length_answers(length.soft_scores(scored, drawn, settings), drawn, settings)[2]
        found += not beyond.ci_low <= 0 <= beyond.ci_high
    assert found <= stats.binom.ppf(0.999, n, 0.05)
