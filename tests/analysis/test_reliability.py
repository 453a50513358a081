from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from analysed import analysed
from synthetic import Plan, make_tables

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.reliability import ceiling, intraclass_correlation, spearman_brown
from specstudy.analysis.study import analyze

FAST = AnalysisSettings(bootstrap_samples=300)


def test_the_intraclass_correlation_by_hand():
    # Means 2, 4, 9 of two answers each: MSB = 2 * var(2, 4, 9) = 26, MSW = (2 + 2 + 2) / 3 = 2.
    values, prompts = np.array([1.0, 3, 3, 5, 8, 10]), np.array([0, 0, 1, 1, 2, 2])
    assert intraclass_correlation(values, prompts, FAST).value == pytest.approx((26 - 2) / (26 + 2))


def test_an_answer_that_is_missing_counts_by_the_effective_number():
    values, prompts = np.array([1.0, 3, 3, 5, 9]), np.array([0, 0, 1, 1, 2])
    between = (2 * (2 - 4.2) ** 2 + 2 * (4 - 4.2) ** 2 + (9 - 4.2) ** 2) / 2
    within, answers = 4 / 2, (5 - 9 / 5) / 2
    expected = (between - within) / (between + (answers - 1) * within)
    assert intraclass_correlation(values, prompts, FAST).value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "prompts", "word"),
    [
        ([1.0, 2, 3], [0, 1, 2], "several"),
        ([1.0, 2, 3, 4], [0, 0, 1, 1], "several"),
        ([1.0] * 6, [0, 0, 1, 1, 2, 2], "constant"),
        ([1.0, 9, 2, 8, 1, 9], [0, 0, 1, 1, 2, 2], "no more alike"),
    ],
)
def test_what_has_no_reliability_says_why(values: list[float], prompts: list[int], word: str) -> None:
    found = intraclass_correlation(np.array(values), np.array(prompts), FAST)
    assert found.value is None
    assert found.null_reason is not None
    assert word in found.null_reason


def test_a_mean_over_answers_is_more_reliable_than_one():
    assert spearman_brown(0.5, 1) == pytest.approx(0.5)
    assert spearman_brown(0.5, 3) == pytest.approx(3 / 4)


def test_noise_bounds_the_correlation_of_two_texts():
    rng = np.random.default_rng(0)
    true = rng.normal(size=5000)
    x, y = true + rng.normal(size=5000), true + 2 * rng.normal(size=5000)
    known = pd.DataFrame(
        {"measure": ["mean_entropy_bits", "mean_expected_accept", "alpha"], "value": [1 / 2, 1 / 2, 1 / 5]}
    )
    assert np.corrcoef(x, y)[0, 1] == pytest.approx(ceiling(known, "mean_entropy_bits", "alpha"), abs=0.03)
    assert ceiling(known, "context_health_soft", "alpha") == pytest.approx(np.sqrt(1 / 5))
    assert ceiling(known, "mean_entropy_bits", "speedup") is None
    assert ceiling(known, "mean_entropy_bits", "mean_expected_accept") is None  # one text, shared noise


def test_a_speculative_answer_is_as_reliable_as_one_of_the_verifiers_own():
    table = analysed(Plan(n_answer_tokens=60, repetitions=3))[0].reliability
    table = table.set_index(table["measure"].map(str))
    assert table.loc["alpha_expected", "answers"] == 3
    assert table.loc["mean_entropy_bits", "value"] > table.loc["mean_entropy_bits", "single"]
    tables = make_tables(Plan(n_answer_tokens=60, repetitions=3))
    tables = {
        name: frame[frame["repetition"] == 0] if name.startswith("spec_") else frame for name, frame in tables.items()
    }
    table = analyze(tables, FAST).reliability
    table = table.set_index(table["measure"].map(str))
    assert list(table.index) == [
        "mean_entropy_bits",
        "mean_draft_entropy_bits",
        "mean_expected_accept",
        "alpha_expected",
    ]
    assert table.loc["alpha_expected", "value"] == pytest.approx(table.loc["mean_expected_accept", "single"])
