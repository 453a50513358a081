"""Predictors, the token model, the mediated path and Simpson's paradox, each against an independent computation."""

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
from specstudy.analysis.mediation import PATHS, mediation
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


def prompt_rows(n=120, a=-0.8, b=-0.8, direct=0.0, seed=0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    m = a * x + rng.normal(size=n)
    y = b * m + direct * x + rng.normal(size=n)
    return pd.DataFrame(
        {
            "x": x,
            "m": m,
            "y": y,
            "category": np.repeat(["code", "math"], n // 2),
            "n_tokens": rng.integers(20, 200, n).astype(float),
            "prompt_nll_bits": rng.normal(size=n),
        }
    )


def test_the_paths_are_those_of_least_squares_on_ranks():
    rows = prompt_rows(direct=0.5)
    found = mediation(rows, "x", "m", "y", FAST)
    held = [rows["category"] == "math", rows["n_tokens"].rank(), rows["prompt_nll_bits"].rank()]
    covariates = np.column_stack(held).astype(float)
    left = {}
    for name in "xmy":
        ranks = rows[name].rank().to_numpy()
        left[name] = sm.OLS(ranks, sm.add_constant(covariates)).fit().resid
        left[name] /= left[name].std()
    a = sm.OLS(left["m"], left["x"]).fit().params[0]
    direct, b = sm.OLS(left["y"], np.column_stack([left["x"], left["m"]])).fit().params
    values = [found[path].value for path in PATHS]
    np.testing.assert_allclose(values, [a, b, a * b, direct, a * b + direct], atol=1e-9)


def test_mediation_is_found_where_it_is_and_not_where_one_link_is_missing():
    found = mediation(prompt_rows(), "x", "m", "y", FAST)
    assert found["indirect"].low > 0.1
    assert found["direct"].low < 0 < found["direct"].high
    missing = mediation(prompt_rows(b=0.0), "x", "m", "y", FAST)
    assert missing["indirect"].low < 0 < missing["indirect"].high


def test_a_constant_context_measure_has_no_path():
    found = mediation(prompt_rows().assign(x=10.0), "x", "m", "y", FAST)
    assert {e.null_reason for e in found.values()} == {"x is constant (10)"}


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


@pytest.mark.parametrize("table", ["predictors", "calibration", "token_model", "mediation"])
def test_rows_fit_their_tables(result, table):
    rows = getattr(result.mechanism, table)
    assert rows
    assert to_table(table, rows).num_rows == len(rows)


def test_nothing_drafted_is_null_with_a_reason():
    mechanism = analysed(stages=("prefill", "decode"))[0].mechanism
    assert {row.null_reason for row in mechanism.predictors} == {"no token was drafted and tested"}
    assert mechanism.calibration == []
    assert mechanism.token_model[0].null_reason == "no token was drafted and tested"
    assert mechanism.mediation[0].null_reason == "acceptance was not measured"
