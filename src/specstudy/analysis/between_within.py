"""Expected acceptance of decoded tokens on entropy, taken apart: within answers, between them, between prompts.

The model, of token t in answer a of prompt p, with x an entropy and bars for means (Mundlak 1978; Bell and Jones 2015):

    accept_pat = constant + within (x_pat - x_pa) + answers (x_pa - x_p) + prompts x_p + u_p + v_pa + e_pat

u and v are random intercepts of prompts and of answers within prompts. They are constant within an answer, and the
parts of x are orthogonal; so generalised least squares takes the slopes apart into three regressions: of tokens about
their answer's mean, of answers about their prompt's mean, and of prompts' means. With equally many answers a prompt and
tokens an answer, that is the mixed model's own solution, whatever the variances of u and v. Elsewhere the slope within
answers still is; between answers every answer weighs alike here, and between prompts every prompt, as in the links of
the chain. Errors are those of a jackknife over prompts: they hold whatever the dependence among tokens and however the
rest spreads, and few or unequal prompts do not make them too small (MacKinnon, Nielsen and Webb 2023).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import (
    NO_SPREAD,
    AnalysisSettings,
    Asymptotic,
    Estimate,
    Floats,
    estimate,
    jackknife_error,
)
from specstudy.analysis.correlation import why_constant
from specstudy.analysis.correlations import holm
from specstudy.analysis.token_model import FEWEST_PROMPTS
from specstudy.records import BetweenWithinTerm

ANSWER = ["prompt_id", "repetition"]
OUTCOME = "expected_accept"
VERIFIER, DRAFT = "entropy_bits", "draft_entropy_bits"
MODELS = ((VERIFIER,), (DRAFT,), (VERIFIER, DRAFT))
WITHIN_ANSWER, BETWEEN_ANSWERS, BETWEEN_PROMPTS = LEVELS = ("within_answer", "between_answers", "between_prompts")


@dataclass(frozen=True)
class Fit:
    """One level of a model: `n` tokens, answers or prompts, and each prompt's part in their moments (`_moments`).

    `slopes` (predictors,), in units of the outcome; None with a `reason` where there are none.
    """

    n: int
    moments: Floats
    slopes: Floats | None = None
    reason: str | None = None


def between_within(decoded: pd.DataFrame, settings: AnalysisSettings) -> list[BetweenWithinTerm]:
    """A row a model, predictor and level. `decoded`: a row a token, as `join.decoded_tokens` gives it."""
    return [row for predictors in MODELS for row in _model(decoded, predictors, settings)]


def _model(decoded: pd.DataFrame, predictors: Sequence[str], settings: AnalysisSettings) -> Iterator[BetweenWithinTerm]:
    tokens = decoded[[*ANSWER, *predictors, OUTCOME]].dropna()
    groups = decoded.drop_duplicates("prompt_id").set_index("prompt_id")["group"].astype(object)
    n_prompts = int(tokens["prompt_id"].nunique())
    # Errors are by groups of prompts that are not independent, so these take the prompts' place in what is left out.
    fits = {level: _fit(level, rows.set_axis(groups[rows.index])) for level, rows in levels(tokens).items()}
    spreads = intercepts(tokens, fits)
    terms = {
        (level, place): _estimate(fits[level], place, settings) for level in LEVELS for place in range(len(predictors))
    }
    adjusted = holm([e.p_value for e in terms.values()])
    for ((level, place), e), p_adjusted in zip(terms.items(), adjusted, strict=True):
        yield BetweenWithinTerm(
            predictor=predictors[place],
            held=", ".join(name for name in predictors if name != predictors[place]),
            level=level,
            n=e.n,
            n_prompts=n_prompts,
            **e.row(),
            standardised=_standardised(fits[level], place),
            p_value=e.p_value,
            p_adjusted=p_adjusted,
            between_prompts_sd=spreads["between_prompts_sd"],
            between_answers_sd=spreads["between_answers_sd"],
            residual_sd=spreads["residual_sd"],
        )


def levels(tokens: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The measures of `tokens` (all columns but prompt_id and repetition) at each level, indexed by prompt_id.

    Tokens minus their answer's mean; answers' means minus their prompt's, of prompts with several answers; prompts'
    means over answers, each answer weighing alike.
    """
    values = tokens.set_index(ANSWER)
    of_answer = values.groupby(level=ANSWER, observed=True)
    answers = of_answer.mean()
    of_prompt = answers.groupby(level="prompt_id", observed=True)
    several = (of_prompt[OUTCOME].transform("size") > 1).to_numpy(dtype=bool)
    return {
        WITHIN_ANSWER: (values - of_answer.transform("mean")).droplevel("repetition"),
        BETWEEN_ANSWERS: (answers - of_prompt.transform("mean"))[several].droplevel("repetition"),
        BETWEEN_PROMPTS: of_prompt.mean(),
    }


def _fit(level: str, rows: pd.DataFrame) -> Fit:
    """The slopes of a level: `rows` by prompt_id, predictors, then the outcome."""
    n, where, moments = len(rows), level.replace("_", " "), _moments(rows)
    if len(moments) < FEWEST_PROMPTS:
        of = "prompts with several answers" if level == BETWEEN_ANSWERS else "prompts with both measures"
        return Fit(n, moments, reason=f"{len(moments)} {of}; errors by prompt need {FEWEST_PROMPTS}")
    for name, column in rows.items():
        if reason := why_constant(column.to_numpy()):
            return Fit(n, moments, reason=f"{name} {reason} {where}")
    found = slopes(moments.sum(axis=0)[None])[0]
    if not np.isfinite(found).all():
        return Fit(n, moments, reason=f"the two entropies are one {where}")
    return Fit(n, moments, found)


def _moments(rows: pd.DataFrame) -> Floats:
    """Each prompt's number of rows, sums (m) and sums of products (m * m) of the columns: (prompts, 1 + m + m * m)."""
    codes, prompts = pd.factorize(rows.index)
    columns = (rows - rows.mean()).to_numpy().T
    products = [a * b for a in columns for b in columns]
    sums = [np.bincount(codes, column, len(prompts)) for column in (np.ones(len(rows)), *columns, *products)]
    return np.column_stack(sums)


def _centred(sums: Floats) -> Floats:
    """Sums of products about the mean, from sums of moments (samples, 1 + m + m * m): (samples, m, m)."""
    m = round((np.sqrt(4 * sums.shape[1] - 3) - 1) / 2)
    n, totals, products = sums[:, :1, None], sums[:, 1 : m + 1], sums[:, m + 1 :].reshape(-1, m, m)
    centred: Floats = products - totals[:, :, None] * totals[:, None, :] / n
    return centred


def slopes(sums: Floats) -> Floats:
    """Least-squares slopes of the last measure on the others, with a constant, from sums of moments.

    (samples, 1 + m + m * m) -> (samples, m - 1); NaN where a predictor does not vary or follows from the others.
    """
    centred = _centred(sums)
    xx, xy = centred[:, :-1, :-1], centred[:, :-1, -1:]
    spread = np.diagonal(xx, axis1=1, axis2=2)
    defined = (spread > 1e-12 * sums[:, :1]).all(axis=1)
    defined &= np.linalg.det(xx) > 1e-9 * np.prod(spread, axis=1)
    found = np.full(spread.shape, np.nan)
    found[defined] = np.linalg.solve(xx[defined], xy[defined])[:, :, 0]
    return found


def _estimate(fit: Fit, place: int, settings: AnalysisSettings) -> Estimate:
    if fit.slopes is None:
        return Estimate(fit.n, null_reason=fit.reason)
    error, degrees = jackknife_error(slopes(fit.moments.sum(axis=0) - fit.moments)[:, place])
    if error == 0:
        return Estimate(fit.n, float(fit.slopes[place]), null_reason=NO_SPREAD)
    known = Asymptotic(float(fit.slopes[place]), error, degrees)
    return estimate(fit.n, known, settings.confidence).against(0.0)


def _standardised(fit: Fit, place: int) -> float | None:
    if fit.slopes is None:
        return None
    spread = np.sqrt(np.diagonal(_centred(fit.moments.sum(axis=0)[None])[0]))
    return float(fit.slopes[place] * spread[place] / spread[-1])


def intercepts(tokens: pd.DataFrame, fits: dict[str, Fit]) -> dict[str, float | None]:
    """Standard deviations of the random intercepts and of the rest, from mean squares of the three levels' residuals.

    Where answers and prompts are balanced and no variance comes out negative (it is then given as 0), these are those
    of restricted maximum likelihood. None where a level they need has no slope.
    """
    sizes = tokens.groupby(ANSWER, observed=True).size()
    answers = sizes.groupby(level="prompt_id", observed=True).size()
    taken = {WITHIN_ANSWER: len(sizes), BETWEEN_ANSWERS: int((answers > 1).sum()), BETWEEN_PROMPTS: 1}
    token, answer, prompt = (_residual_variance(fits[level], taken[level]) for level in LEVELS)
    variances = {
        "between_prompts_sd": prompt - answer * (1 / answers).mean(),
        "between_answers_sd": answer - token * (1 / sizes).mean(),
        "residual_sd": token,
    }
    return {name: float(np.sqrt(max(0.0, v))) if np.isfinite(v) else None for name, v in variances.items()}


def _residual_variance(fit: Fit, taken: int) -> float:
    """Mean square of a level's residuals, `taken` degrees of freedom having gone into means; NaN without slopes."""
    if fit.slopes is None:
        return np.nan
    left = np.append(-fit.slopes, 1.0)
    return float(left @ _centred(fit.moments.sum(axis=0)[None])[0] @ left / (fit.n - taken - len(fit.slopes)))
