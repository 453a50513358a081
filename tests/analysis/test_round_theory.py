"""Tokens a round against the prediction from alpha: by hand, and on rounds whose tokens pass independently."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from synthetic import Plan, make_tables

from specstudy.analysis.bootstrap import AnalysisSettings, Estimate
from specstudy.analysis.join import conditions_measured
from specstudy.analysis.means import ratio
from specstudy.analysis.measures import At, condition_suffixes
from specstudy.analysis.round_theory import MEASURED, PREDICTED, predicted_tokens, tokens_of_rounds
from specstudy.condition import Condition

SETTINGS = AnalysisSettings(bootstrap_samples=500)
Rng = np.random.Generator


def answer(passed: np.ndarray, gamma: int = 4, n_tokens: int = 128) -> list[tuple[int, int, int]]:
    """Proposed, tested and accepted of each round of an answer that ends at `n_tokens`, as the loop has it, of as many
    tokens in a row that would have passed."""
    rounds, n_left = [], n_tokens
    for would_pass in passed.tolist():
        if not n_left:
            break
        proposed = min(gamma, n_left - 1)
        accepted = min(would_pass, proposed)
        rounds.append((proposed, min(accepted + 1, proposed), accepted))
        n_left -= accepted + 1
    return rounds


def studied(rng: Rng, gain: float = 0.0, n_prompts: int = 50) -> Estimate:
    """The ratio in a study of prompts with alphas of their own; `gain`: how much likelier all but the first token of a
    round pass."""
    rounds, prompts = [], []
    for prompt, alpha in enumerate(rng.uniform(0.4, 0.7, n_prompts)):
        own = answer((rng.random(128) < alpha) * rng.geometric(1 - alpha - gain, 128))
        rounds += own
        prompts += [prompt] * len(own)
    proposed, tested, accepted = np.array(rounds, dtype=float).T
    codes = np.array(prompts)
    measured = np.bincount(codes, accepted + 1)
    return ratio(measured, predicted_tokens(proposed, tested, accepted, codes), SETTINGS)


def test_by_hand() -> None:
    # Two rounds of two, one all accepted, one rejected at once: 2 of 3 pass. Without the first round alpha is 0,
    # without the second 1. Expected of a round of two: 1 + a + a^2.
    found = predicted_tokens(np.array([2.0, 2.0]), np.array([2.0, 1.0]), np.array([2.0, 0.0]), np.array([0, 0]))
    whole, without = 2 * (1 + 2 / 3 + 4 / 9), (2 * 1 + 2 * 3) / 2
    assert found == pytest.approx([2 * whole - without])


def test_a_round_that_drafts_fewer_is_expected_to_give_fewer() -> None:
    always = np.array([4.0, 4.0, 1.0, 0.0])
    assert predicted_tokens(always, always, always, np.zeros(4, dtype=int)) == pytest.approx([5 + 5 + 2 + 1])


def test_a_single_round_is_predicted_from_itself() -> None:
    one = predicted_tokens(np.array([3.0]), np.array([2.0]), np.array([1.0]), np.array([0]))
    assert one == pytest.approx([1 + 1 / 2 + 1 / 4 + 1 / 8])


def test_sums_are_by_prompt_and_only_where_the_theory_applies() -> None:
    plain, stopped = Condition(4, "model", "none", 0.7, 0.9), Condition(4, "model", "entropy", 0.7, 0.9, 0.2)
    tables = make_tables(Plan(n_per_category=2, n_answer_tokens=30, conditions=(plain, stopped)))
    suffixes = condition_suffixes(conditions_measured(tables))
    found = tokens_of_rounds(tables, suffixes)
    assert [key.condition for key in found] == [plain, plain]
    rounds = tables["spec_rounds"]
    own = rounds[(rounds["stop"] == "none") & (rounds["prompt_id"] == "code-01")]
    assert found.loc["code-01", At(MEASURED, plain)] == (own["n_accepted"] + 1).sum()
    assert found[At(PREDICTED, plain)].notna().all()


def test_independent_tokens_agree_and_runs_of_easy_ones_do_not() -> None:
    independent = studied(np.random.default_rng(0))
    assert 0.95 < independent.low < 1 < independent.high < 1.05
    runs = studied(np.random.default_rng(0), gain=0.25)
    assert runs.high < 1 or runs.low > 1


@pytest.mark.long
def test_the_interval_misses_the_ratio_of_independent_tokens_in_one_of_twenty_studies() -> None:
    n = 400
    found = [studied(np.random.default_rng([seed, 2024])) for seed in range(n)]
    missed = sum(not e.low <= 1 <= e.high for e in found)
    assert stats.binom.ppf(0.0005, n, 0.03) <= missed <= stats.binom.ppf(0.9995, n, 0.05)
    assert np.mean([e.value for e in found]) == pytest.approx(1, abs=0.001)
