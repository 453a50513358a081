"""The bound behind the `bound` rule: counted by hand, and a planted percentile found again."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.entropy_bound import entropy_bounds, lower_bound, percentile

FAST = AnalysisSettings(bootstrap_samples=400)


def tokens(nats: np.ndarray, accepted: np.ndarray, prompts: list[str], category: str = "code") -> pd.DataFrame:
    return pd.DataFrame(
        {
            "prompt_id": pd.Categorical(prompts),
            "group": pd.Categorical(prompts),
            "category": pd.Categorical([category] * len(prompts)),
            "draft_entropy_bits": nats / math.log(2),
            "expected_accept": accepted,
        }
    )


def test_violations_and_c95_by_hand() -> None:
    assert lower_bound(np.array([1.25])) == pytest.approx(0.5)
    # 1 - sqrt(.2 H) is .5 at 1.25 nats and negative at 6: nothing can lie below it there.
    nats = np.array([1.25, 1.25, 1.25, 6.0, 1e-5, 2.0])
    accepted = np.array([0.49, 0.51, 0.75, 0.0, 0.2, np.nan])
    rows = {r.measure: r for r in entropy_bounds(tokens(nats, accepted, ["a", "b", "c", "a", "b", "c"]), FAST)}
    violated, c95 = rows["violated_share"], rows["c95"]
    assert (violated.estimate, violated.n, violated.n_excluded, violated.coefficient) == (0.25, 4, 1, 0.2)
    # Of four values the 95th percentile is the largest: .51^2 / 1.25
    assert c95.estimate == pytest.approx(0.51**2 / 1.25)
    assert (c95.n, c95.n_excluded, c95.coefficient) == (4, 1, None)


def test_a_planted_coefficient_is_found() -> None:
    rng = np.random.default_rng(3)
    n, n_prompts = 6000, 40
    nats, coefficients = rng.uniform(0.05, 2.0, n), rng.uniform(0.0, 0.3, n)
    accepted = 1 - np.sqrt(coefficients * nats)
    frame = tokens(nats, accepted, [f"p{i % n_prompts}" for i in range(n)])
    rows = {r.measure: r for r in entropy_bounds(frame, FAST) if r.category == "all"}
    assert rows["c95"].estimate == pytest.approx(0.285, abs=0.004)
    assert rows["c95"].ci_low < 0.285 < rows["c95"].ci_high
    assert rows["violated_share"].estimate == pytest.approx(1 / 3, abs=0.03)


def test_prompts_are_resampled_and_not_tokens() -> None:
    # Every token of a prompt has the prompt's own value: as much is known as there are prompts.
    values = np.repeat(np.random.default_rng(0).uniform(0, 1, 20), 200)
    together = percentile(values, np.repeat(np.arange(20), 200), 0.95, FAST)
    apart = percentile(values, np.arange(len(values)), 0.95, FAST)
    assert together.value == apart.value
    assert together.high - together.low > 3 * (apart.high - apart.low)


def test_resampled_percentiles_are_those_of_the_rows_drawn() -> None:
    rng = np.random.default_rng(5)
    values, prompts = rng.normal(size=300), rng.integers(12, size=300)
    settings = AnalysisSettings(bootstrap_samples=5)
    drawn = [np.repeat(values, counts[prompts].astype(int)) for counts in settings.counts(12)]
    expected = [np.quantile(rows, 0.95, method="inverted_cdf") for rows in drawn]
    np.testing.assert_array_equal(percentile(values, prompts, 0.95, settings).uncertainty.samples, expected)


def test_categories_have_rows_of_their_own_and_few_prompts_no_interval() -> None:
    rng = np.random.default_rng(1)
    frames = [
        tokens(rng.uniform(0.1, 2, 30), rng.uniform(0, 1, 30), [f"{name}{i % 2}" for i in range(30)], name)
        for name in ("code", "math")
    ]
    names = dict.fromkeys(("prompt_id", "group", "category"), object)
    frame = pd.concat([f.astype(names) for f in frames]).astype("category")
    frame = frame.astype({"draft_entropy_bits": float, "expected_accept": float})
    rows = entropy_bounds(frame, FAST)
    assert [(r.category, r.measure) for r in rows] == [
        (category, measure) for category in ("all", "code", "math") for measure in ("violated_share", "c95")
    ]
    assert all(r.ci_low is None and r.null_reason for r in rows if r.category != "all")
    assert all(r.ci_low is not None for r in rows if r.category == "all")
