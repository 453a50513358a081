"""Predictors, the token model and Simpson's paradox, each against an independent computation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from analysed import analysed
from scipy import stats
from synthetic import Plan

from specstudy.analysis import predictors
from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.correlations import Pair
from specstudy.analysis.mechanism import reversals
from specstudy.analysis.study import AnalysisResult
from specstudy.analysis.token_model import token_model
from specstudy.records import Correlation
from specstudy.tables.schema import to_table

FAST = AnalysisSettings(bootstrap_samples=300)


def drafted_tokens(n_prompts=20, n_tokens=150, slope=-0.8, prompt_effect=0.7, seed=0) -> pd.DataFrame:
    """Tested tokens whose log-odds of acceptance fall with entropy and differ between prompts."""
    rng = np.random.default_rng(seed)
    prompt = np.repeat(np.arange(n_prompts), n_tokens)
    entropy = rng.gamma(2.0, 1.0, len(prompt))
    odds = 1.0 + slope * entropy + prompt_effect * rng.normal(size=n_prompts)[prompt]
    accepted = (rng.random(len(prompt)) < 1 / (1 + np.exp(-odds))).astype(float)
    return pd.DataFrame(
        {
            "prompt_id": pd.Categorical([f"p{i:04d}" for i in prompt]),
            "group": pd.Categorical([f"p{i:04d}" for i in prompt]),
            "category": pd.Categorical(np.where(prompt % 2, "code", "math")),
            "index": rng.integers(0, 3, len(prompt)),
            "accepted": accepted,
            "draft_entropy_bits": entropy,
            "draft_top_prob": np.exp(-entropy),
            "draft_top_margin": rng.random(len(prompt)),
            "p_draft": np.exp(-entropy * rng.random(len(prompt))),
        }
    )


PREDICTOR = {p.name: p for p in predictors.PREDICTORS}


def test_auroc_is_mann_whitneys_u():
    tokens = drafted_tokens()
    data = predictors.binned(tokens, PREDICTOR["draft_entropy"])
    passed = tokens["accepted"] == 1
    u = stats.mannwhitneyu(-tokens["draft_entropy_bits"][passed], -tokens["draft_entropy_bits"][~passed]).statistic
    estimate = predictors.auroc(data, FAST)
    assert estimate.value == pytest.approx(u / passed.sum() / (~passed).sum(), abs=5e-4)
    assert estimate.low < estimate.value < estimate.high
    assert estimate.n == len(tokens)


def test_a_useless_predictor_has_an_interval_around_one_half():
    estimate = predictors.auroc(predictors.binned(drafted_tokens(), PREDICTOR["draft_top_margin"]), FAST)
    assert estimate.low < 0.5 < estimate.high


def test_probabilities_come_from_other_prompts_only():
    tokens = drafted_tokens()
    data = predictors.binned(tokens, PREDICTOR["draft_entropy"])
    others = tokens[tokens["prompt_id"].cat.codes % predictors.N_FOLDS != 3]
    design = sm.add_constant(others["draft_entropy_bits"].to_numpy())
    fit = sm.Logit(others["accepted"].to_numpy(), design).fit(disp=0)
    # Bins run from high entropy to low; each is known by its middle.
    own = tokens["draft_entropy_bits"].to_numpy()
    middles = np.sort([chunk.mean() for chunk in np.array_split(np.sort(own), data.accepted.shape[1])])[::-1]
    expected = fit.predict(sm.add_constant(middles))
    np.testing.assert_allclose(data.predicted[3], expected, atol=0.02)
    assert not np.allclose(data.predicted[3], data.predicted[4], atol=1e-6)


def test_brier_score_and_calibration_of_the_true_probability_and_of_a_wrong_one():
    rng = np.random.default_rng(0)
    probability = np.linspace(0.05, 0.95, 50)
    sizes = np.full((30, 50), 40.0)
    accepted = rng.binomial(40, probability, (30, 50)).astype(float)
    right = predictors.Binned(accepted, sizes - accepted, np.broadcast_to(probability, sizes.shape))
    wrong = predictors.Binned(accepted, sizes - accepted, np.broadcast_to(probability**3, sizes.shape))
    assert predictors.brier_score(right, FAST).value == pytest.approx(
        (probability * (1 - probability)).mean(), abs=0.003
    )
    assert predictors.calibration_error(right, FAST).value < 0.01
    assert predictors.calibration_error(wrong, FAST).value == pytest.approx(
        (probability - probability**3).mean(), abs=0.01
    )
    points = list(predictors.calibration(right, FAST))
    assert len(points) == predictors.N_GROUPS
    assert all(abs(predicted - share.value) < 0.03 and share.low < share.high for predicted, share in points)


def test_calibration_error_by_chance_by_hand():
    # One bin of one token said to pass with 1/2: whatever happens, it is off by 1/2.
    one = predictors.Binned(np.array([[1.0]]), np.array([[0.0]]), np.array([[0.5]]))
    assert set(predictors.chance_errors(one, np.random.default_rng(0), 20)) == {0.5}
    # Two such tokens: both or neither pass in half of all cases, off by 1/2, else not at all.
    two = predictors.Binned(np.array([[2.0]]), np.array([[0.0]]), np.array([[0.5]]))
    errors = predictors.chance_errors(two, np.random.default_rng(0), 4000)
    assert set(errors) == {0.0, 0.5}
    assert errors.mean() == pytest.approx(0.25, abs=0.02)


def test_a_perfectly_calibrated_model_has_the_calibration_error_of_chance():
    rng = np.random.default_rng(0)
    probability = np.broadcast_to(np.linspace(0.05, 0.95, 50), (30, 50))
    sizes = np.full(probability.shape, 2.0)

    def error(accepted: np.ndarray) -> float:
        return predictors.calibration_error(predictors.Binned(accepted, sizes - accepted, probability), FAST).value

    drawn = [error(rng.binomial(2, probability).astype(float)) for _ in range(60)]
    chance = predictors.calibration_error_by_chance(predictors.Binned(sizes, 0 * sizes, probability), FAST)
    assert np.mean(drawn) == pytest.approx(chance.value, rel=0.1)
    # 300 tokens a group: the mean distance of a sum from its expectation is sqrt(2 / pi) of its standard deviation.
    variances = (probability * (1 - probability) * 2).sum(axis=0).reshape(10, 5).sum(axis=1)
    assert chance.value == pytest.approx(np.sqrt(2 / np.pi * variances).sum() / sizes.sum(), rel=0.05)
    assert np.mean([chance.low <= e <= chance.high for e in drawn]) > 0.85
    assert error((rng.random(probability.shape) < probability**2) * sizes) > chance.high


def test_who_knows_p_and_q_is_the_ceiling_and_shares_are_of_its_distance_from_chance():
    rng = np.random.default_rng(0)
    tokens = drafted_tokens(prompt_effect=0.0)
    expected = rng.beta(1.0, 1.0, len(tokens))
    tokens = tokens.assign(expected_accept=expected, accepted=(rng.random(len(tokens)) < expected).astype(float))
    tokens["draft_entropy_bits"] = 1 - expected + rng.normal(0, 0.3, len(tokens))
    ceiling = predictors.binned(tokens, PREDICTOR[predictors.CEILING])
    # Of uniform probabilities pairs are in order in 5/6 of cases.
    assert predictors.auroc(ceiling, FAST).value == pytest.approx(5 / 6, abs=0.01)
    assert predictors.calibration_error(ceiling, FAST).value < 0.03
    data = predictors.binned(tokens, PREDICTOR["draft_entropy"])
    share, own = predictors.share_of_ceiling(data, ceiling, FAST), predictors.auroc(data, FAST)
    most = predictors.auroc(ceiling, FAST).value
    assert share.value == pytest.approx((own.value - 0.5) / (most - 0.5))
    assert share.low < share.value < share.high < 1


def test_the_same_predictor_differs_from_itself_by_nothing():
    data = predictors.binned(drafted_tokens(), PREDICTOR["draft_entropy"])
    same = predictors.difference(data, data, "auroc", FAST)
    assert (same.value, same.low, same.high) == (0.0, None, None)
    assert same.null_reason == "the same in every sample of prompts"
    rival = predictors.binned(drafted_tokens(), PREDICTOR["draft_top_margin"])
    assert predictors.difference(rival, data, "auroc", FAST).high < -0.1


def test_what_cannot_be_predicted_has_a_reason():
    tokens = drafted_tokens()
    few = tokens[tokens["prompt_id"].cat.codes < 3]
    assert "prompts with tested tokens" in predictors.binned(few, PREDICTOR["draft_entropy"])
    assert "acceptance is constant" in predictors.binned(tokens.assign(accepted=1.0), PREDICTOR["draft_entropy"])
    constant = tokens.assign(draft_entropy_bits=2.0)
    assert "the predictor is constant" in predictors.binned(constant, PREDICTOR["draft_entropy"])


def test_a_predictor_that_separates_the_outcomes_is_perfect():
    tokens = drafted_tokens()
    apart = tokens.assign(accepted=(tokens["draft_entropy_bits"] < 1).astype(float))
    data = predictors.binned(apart, PREDICTOR["draft_entropy"])
    assert predictors.auroc(data, FAST).value > 0.999
    assert predictors.brier_score(data, FAST).value < 0.01


def test_the_token_model_is_gee_with_independence_and_a_jackknife_over_prompts():
    tokens = drafted_tokens()
    found = token_model(tokens, FAST)["draft_entropy_bits"]
    terms = tokens[["draft_entropy_bits", "index", "category"]]
    design = sm.add_constant(pd.get_dummies(terms, columns=["index", "category"], drop_first=True).astype(float))
    groups, family = tokens["prompt_id"].cat.codes.to_numpy(), sm.families.Binomial()
    gee = sm.GEE(tokens["accepted"], design, groups, family=family, cov_struct=sm.cov_struct.Independence())
    assert found.value == pytest.approx(gee.fit().params["draft_entropy_bits"], abs=1e-5)
    without = [
        sm.GLM(tokens["accepted"][groups != i], design[groups != i], family=family).fit().params["draft_entropy_bits"]
        for i in range(20)
    ]
    error = (found.high - found.low) / (2 * stats.t.ppf(0.975, 19))
    assert error == pytest.approx(np.sqrt(19 / 20 * np.sum((np.array(without) - found.value) ** 2)), rel=0.02)
    # GEE's errors reduced in bias (Mancl and DeRouen 2001) leave out the factor 19 / 20; the plain sandwich is smaller.
    sandwich, reduced = (gee.fit(cov_type=kind).bse["draft_entropy_bits"] for kind in ("robust", "bias_reduced"))
    assert reduced == pytest.approx(error * np.sqrt(20 / 19), rel=0.01)
    assert sandwich < error


def test_the_token_model_refuses_what_it_cannot_fit():
    few = drafted_tokens(n_prompts=6)
    assert "6 prompts" in token_model(few, FAST)["draft_entropy_bits"].null_reason
    constant = drafted_tokens().assign(draft_entropy_bits=1.0)
    assert "is constant" in token_model(constant, FAST)["draft_entropy_bits"].null_reason


def record(subset: str, estimate: float, low: float, high: float) -> Correlation:
    return Correlation(
        level="prompt",
        subset=subset,
        x="x",
        y="y",
        method="spearman",
        n=50,
        estimate=estimate,
        ci_low=low,
        ci_high=high,
        p_value=0.01,
        p_adjusted=0.01,
        null_reason=None,
    )


def test_simpsons_paradox_is_named_only_where_both_intervals_exclude_zero():
    pooled, within = record("all", 0.5, 0.2, 0.7), record("within_category", -0.5, -0.7, -0.2)
    pair = Pair("prompt", "all", "x", "y", "spearman")

    def found(other: Correlation) -> list:
        return list(reversals({pair: pooled, pair._replace(subset="within_category"): other}))

    assert found(within) == [(pair, pooled, within)]
    assert not found(record("within_category", -0.2, -0.5, 0.1))
    assert not found(record("within_category", 0.5, 0.2, 0.7))


@pytest.fixture
def result() -> AnalysisResult:
    return analysed(Plan(n_answer_tokens=60))[0]


@pytest.mark.parametrize("table", ["predictors", "calibration", "token_model", "between_within"])
def test_rows_fit_their_tables(result, table):
    rows = getattr(result.mechanism, table)
    assert rows
    assert to_table(table, rows).num_rows == len(rows)


def test_nothing_drafted_is_null_with_a_reason():
    mechanism = analysed(stages=("prefill", "decode"))[0].mechanism
    assert {row.null_reason for row in mechanism.predictors} == {"no token was drafted and tested"}
    assert mechanism.calibration == []
    assert mechanism.token_model[0].null_reason == "no token was drafted and tested"
