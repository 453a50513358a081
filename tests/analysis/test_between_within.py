"""The between-and-within model against statsmodels' mixed model, against planted slopes, and where it has no answer."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.regression.mixed_linear_model import MixedLM

from specstudy.analysis.between_within import DRAFT, LEVELS, OUTCOME, VERIFIER, between_within
from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.records import BetweenWithinTerm
from specstudy.tables.schema import to_table

SETTINGS = AnalysisSettings()
WITHIN, ANSWERS, PROMPTS = LEVELS
PLANTED = {
    VERIFIER: {WITHIN: -0.10, ANSWERS: 0.05, PROMPTS: 0.20},
    DRAFT: {WITHIN: -0.05, ANSWERS: -0.10, PROMPTS: 0.0},
}
"""Acceptance falls with the verifier's entropy within an answer and rises with it between prompts."""


def decoded(
    n_prompts: int = 30,
    n_answers: int = 3,
    n_tokens: int = 20,
    *,
    is_even: bool = True,
    changing_spread: float = 0.0,
    seed: int | list[int] = 0,
) -> pd.DataFrame:
    """Decoded tokens with PLANTED slopes on entropies as observed, and intercepts of prompts (SD .1) and answers (.05).

    `is_even`: answers of equal length. `changing_spread`: how much the rest spreads more where entropy is higher.
    """
    rng = np.random.default_rng(seed)
    lengths = (
        np.full(n_prompts * n_answers, n_tokens) if is_even else rng.integers(2, 2 * n_tokens, n_prompts * n_answers)
    )
    answer = np.repeat(np.arange(n_prompts * n_answers), lengths)
    prompt = answer // n_answers
    names = pd.Categorical([f"p{i:04d}" for i in prompt])
    keys = {"prompt_id": names, "group": names, "repetition": answer % n_answers}
    tokens = pd.DataFrame(keys)
    tokens[OUTCOME] = 0.5 + 0.1 * rng.normal(size=n_prompts)[prompt] + 0.05 * rng.normal(size=lengths.size)[answer]
    shared = rng.normal(size=len(answer))
    for name, slopes in PLANTED.items():
        x = 2.0 + rng.normal(size=n_prompts)[prompt] + 0.5 * rng.normal(size=lengths.size)[answer]
        x += 0.6 * shared + 0.8 * rng.normal(size=len(answer))
        of_answer = pd.Series(x).groupby(answer).transform("mean").to_numpy()
        of_prompt = pd.Series(pd.Series(x).groupby(answer).mean().groupby(np.arange(lengths.size) // n_answers).mean())
        means = of_prompt.to_numpy()[prompt]
        parts = (x - of_answer, of_answer - means, means)
        tokens[OUTCOME] += sum(slopes[level] * part for level, part in zip(LEVELS, parts, strict=True))
        tokens[name] = x
    spread = 0.1 * np.exp(changing_spread * (tokens[VERIFIER].to_numpy() - 2.0))
    tokens[OUTCOME] += spread * rng.normal(size=len(answer))
    return tokens


def found(tokens: pd.DataFrame) -> dict[tuple[str, str, str], BetweenWithinTerm]:
    return {(row.predictor, row.held, row.level): row for row in between_within(tokens, SETTINGS)}


@pytest.mark.parametrize(("predictor", "held"), [(VERIFIER, ""), (DRAFT, ""), (VERIFIER, DRAFT)])
def test_it_is_the_nested_mixed_model_where_answers_are_even(predictor, held):
    tokens = decoded()
    names = [predictor, *([held] if held else [])]
    answers = [tokens["prompt_id"], tokens["repetition"]]
    for name in names:
        of_answer = tokens.groupby(answers, observed=True)[name].transform("mean")
        of_prompt = tokens.groupby("prompt_id", observed=True)[name].transform("mean")
        parts = (tokens[name] - of_answer, of_answer - of_prompt, of_prompt)
        tokens = tokens.assign(**{f"{name}_{level}": part for level, part in zip(LEVELS, parts, strict=True)})
    terms = [f"{name}_{level}" for name in names for level in LEVELS]
    formula = f"{OUTCOME} ~ {' + '.join(terms)}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        intercepts = {"answer": "0 + C(repetition)"}
        model = MixedLM.from_formula(formula, tokens, groups="prompt_id", re_formula="1", vc_formula=intercepts)
        fit = model.fit(reml=True)
    rows = found(tokens)
    for name in names:
        other = ", ".join(n for n in names if n != name)
        for level in LEVELS:
            assert rows[name, other, level].estimate == pytest.approx(fit.params[f"{name}_{level}"], abs=1e-5)
    row = rows[predictor, held, WITHIN]
    assert row.between_prompts_sd == pytest.approx(np.sqrt(fit.cov_re.iloc[0, 0]), rel=2e-3)
    assert row.between_answers_sd == pytest.approx(np.sqrt(fit.vcomp[0]), rel=2e-3)
    assert row.residual_sd == pytest.approx(np.sqrt(fit.scale), rel=1e-4)


def test_uneven_answers_weigh_alike_between_answers_and_tokens_alike_within():
    tokens = decoded(is_even=False).drop(columns=DRAFT).assign(draft_entropy_bits=np.nan)
    answers = tokens.groupby(["prompt_id", "repetition"], observed=True)[[VERIFIER, OUTCOME]].mean()
    inside = tokens[[VERIFIER, OUTCOME]] - tokens.groupby(["prompt_id", "repetition"], observed=True)[
        [VERIFIER, OUTCOME]
    ].transform("mean")
    prompts = answers.groupby("prompt_id", observed=True).mean()
    between = answers - answers.groupby("prompt_id", observed=True).transform("mean")
    rows = found(tokens)
    for level, values in ((WITHIN, inside), (ANSWERS, between), (PROMPTS, prompts)):
        line = stats.linregress(values[VERIFIER], values[OUTCOME])
        row = rows[VERIFIER, "", level]
        assert row.estimate == pytest.approx(line.slope)
        # The slope in standard deviations is the correlation at that level.
        assert row.standardised == pytest.approx(line.rvalue)
        assert row.n == len(values)


def test_slopes_of_opposite_signs_are_told_apart():
    """Simpson's paradox: over all tokens the two cancel in part."""
    tokens = decoded(n_prompts=60, is_even=False)
    rows = found(tokens)
    for name, other in ((VERIFIER, DRAFT), (DRAFT, VERIFIER)):
        for level in LEVELS:
            row = rows[name, other, level]
            assert row.ci_low < PLANTED[name][level] < row.ci_high
    assert rows[VERIFIER, DRAFT, WITHIN].ci_high < 0 < rows[VERIFIER, DRAFT, PROMPTS].ci_low
    assert max(rows[VERIFIER, DRAFT, level].p_adjusted for level in (WITHIN, PROMPTS)) < 0.001
    assert rows[DRAFT, VERIFIER, PROMPTS].p_value > 0.05


def test_rows_fit_their_table():
    rows = between_within(decoded(), SETTINGS)
    assert to_table("between_within", rows).num_rows == 12


@pytest.mark.parametrize(
    ("tokens", "levels", "reason"),
    [
        (decoded().iloc[:0], LEVELS, "0 prompts"),
        (decoded(n_prompts=1), LEVELS, "1 prompts"),
        (decoded(n_answers=1), (ANSWERS,), "0 prompts with several answers"),
        (decoded().assign(entropy_bits=1.5), LEVELS, "entropy_bits is constant"),
        (decoded().assign(expected_accept=0.25), LEVELS, "expected_accept is constant"),
        (decoded().assign(entropy_bits=np.nan), LEVELS, "0 prompts"),
    ],
    ids=["no token", "one prompt", "one answer", "constant entropy", "constant acceptance", "not measured"],
)
def test_what_cannot_be_asked_is_null_with_its_reason(tokens, levels, reason):
    rows = found(tokens)
    assert to_table("between_within", [*rows.values()]).num_rows == 12
    for level in LEVELS:
        row = rows[VERIFIER, "", level]
        told = (row.estimate, row.ci_low, row.ci_high, row.p_value, row.standardised)
        if level in levels:
            assert told == (None,) * 5
            assert reason in row.null_reason
        else:
            assert None not in told


def test_one_answer_a_prompt_leaves_the_other_levels():
    rows = found(decoded(n_answers=1))
    assert rows[VERIFIER, "", WITHIN].estimate == pytest.approx(PLANTED[VERIFIER][WITHIN], abs=0.06)
    assert rows[VERIFIER, "", WITHIN].between_answers_sd is None
    assert rows[VERIFIER, "", WITHIN].residual_sd is not None


def test_equal_entropies_have_no_slopes_of_their_own():
    tokens = decoded()
    rows = found(tokens.assign(draft_entropy_bits=2 * tokens[VERIFIER]))
    assert "are one" in rows[VERIFIER, DRAFT, WITHIN].null_reason
    assert rows[VERIFIER, "", WITHIN].null_reason is None


@pytest.mark.long
@pytest.mark.parametrize("n_prompts", [12, 50])
def test_intervals_miss_as_often_as_stated(n_prompts):
    """Answers are uneven, and tokens spread more where entropy is higher, which the mixed model's own errors ignore."""
    n_studies = 600
    missed = dict.fromkeys(((name, level) for name in PLANTED for level in LEVELS), 0)
    for study in range(n_studies):
        tokens = decoded(n_prompts, n_tokens=10, is_even=False, changing_spread=0.4, seed=[study, n_prompts])
        rows = found(tokens)
        for name, other in ((VERIFIER, DRAFT), (DRAFT, VERIFIER)):
            for level in LEVELS:
                row = rows[name, other, level]
                missed[name, level] += not row.ci_low < PLANTED[name][level] < row.ci_high
    # Where 999 of 1000 counts of such intervals lie; those of 12 prompts may be somewhat too wide or too narrow.
    least, most = (stats.binom.ppf(q, n_studies, rate) for q, rate in ((0.0005, 0.03), (0.9995, 0.06)))
    assert all(least <= count <= most for count in missed.values()), missed
