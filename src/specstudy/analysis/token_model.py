"""Acceptance of a tested token, by draft entropy with all else equal: a logistic regression with prompts as clusters.

The fit is that of generalised estimating equations with independence as the working correlation (Liang and Zeger 1986).
Its errors are robust to any dependence among the tokens of one prompt: those of a jackknife over prompts, which few or
unequal clusters do not make too small as they do the sandwich (MacKinnon, Nielsen and Webb 2023). Untested tokens have
no fate and are left out; that the place in the round is among the terms holds constant that later places are reached
only through acceptances.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pandas as pd
from statsmodels.genmod.families import Binomial
from statsmodels.genmod.generalized_linear_model import GLM

from specstudy.analysis.bootstrap import (
    AnalysisSettings,
    Asymptotic,
    Codes,
    Estimate,
    Floats,
    estimate,
    jackknife_error,
)
from specstudy.analysis.correlation import why_constant

TERM = "draft_entropy_bits"
# A sandwich of few clusters is too small; under this many it is not used.
FEWEST_PROMPTS = 10


def token_model(tested: pd.DataFrame, settings: AnalysisSettings) -> dict[str, Estimate]:
    """Log-odds of acceptance by term: draft_entropy_bits (a bit more), place 2, 3, ... (against the first), category
    (against the first by name). One entry with its reason where nothing can be fitted."""
    tokens = tested[[TERM, "accepted", "index", "category", "prompt_id", "group"]].dropna()
    reason = _why_not(tokens)
    if reason:
        return {TERM: Estimate(len(tokens), null_reason=reason)}
    columns = {"constant": np.ones(len(tokens)), TERM: tokens[TERM].to_numpy(), **dict(_dummies(tokens))}
    design, accepted = np.column_stack(list(columns.values())), tokens["accepted"].to_numpy()
    groups = pd.factorize(tokens["group"])[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = GLM(accepted, design, family=Binomial()).fit()
        fitted = fit.fittedvalues
    moves = jackknife_moves(design, accepted, fitted, groups)
    if not fit.converged or not np.isfinite(moves).all() or (np.ptp(moves, axis=0) <= 0).any():
        return {TERM: Estimate(len(tokens), null_reason="the logistic regression has no finite solution")}
    known = [Asymptotic(float(v), *jackknife_error(m)) for v, m in zip(fit.params, moves.T, strict=True)]
    return {
        term: estimate(len(tokens), uncertainty, settings.confidence).against(0.0)
        for term, uncertainty in zip(columns, known, strict=True)
    }


def jackknife_moves(design: Floats, accepted: Floats, fitted: Floats, groups: Codes) -> Floats:
    """How far leaving out each prompt moves the estimates of a logistic regression, by one Newton step each.

    design (rows, terms); accepted, fitted, groups (rows,) -> (prompts, terms). Without prompt i the estimate moves by
    -(A - A_i)^-1 s_i: A is the information of all rows, A_i and s_i are the prompt's information and score. NaN if
    A - A_i is singular.
    """
    n, k = int(groups.max()) + 1, design.shape[1]
    score = np.column_stack([np.bincount(groups, (accepted - fitted) * column, n) for column in design.T])
    weighted = design * (fitted * (1 - fitted))[:, None]
    own = np.empty((n, k, k))
    for i in range(k):
        for j in range(i, k):
            own[:, i, j] = own[:, j, i] = np.bincount(groups, weighted[:, i] * design[:, j], n)
    try:
        moves: Floats = -np.linalg.solve(own.sum(axis=0) - own, score[:, :, None])[:, :, 0]
    except np.linalg.LinAlgError:
        return np.full((n, k), np.nan)
    return moves


def _why_not(tokens: pd.DataFrame) -> str | None:
    n_prompts = tokens["group"].nunique()
    if n_prompts < FEWEST_PROMPTS:
        return f"{n_prompts} prompts with tested tokens; errors by prompt need {FEWEST_PROMPTS}"
    for name in (TERM, "accepted"):
        if reason := why_constant(tokens[name].to_numpy()):
            return f"{name} {reason}"
    return None


def _dummies(tokens: pd.DataFrame) -> Iterator[tuple[str, np.ndarray]]:
    """A column of 0 and 1 for each place and category but the first."""
    for key, name in (("index", "place"), ("category", "category")):
        values = tokens[key].astype(object).to_numpy() if key == "category" else tokens[key].to_numpy()
        for level in sorted(set(values))[1:]:
            yield f"{name}_{level + 1 if key == 'index' else level}", (values == level).astype(np.float64)
