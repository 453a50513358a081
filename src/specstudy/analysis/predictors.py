"""How well acceptance of a drafted token is predicted, by draft entropy and by other predictors as cheap.

Tested tokens only: what lies behind a rejection is never tested, so nothing is known of it, and later places in a round
hold the easier stretches of text. Each predictor is cut into bins of equal counts; counts of accepted and rejected
tokens by prompt and bin are all that any measure here needs, so a bootstrap over prompts costs one matrix product.

Probabilities come from a logistic regression on the predictor, fitted without the prompts that it predicts (five folds
of whole prompts). AUROC is that of the predictor itself, which no fit can change. The entropy bound is taken as it is.

No score stands alone. Who knows p and q before the draft draws its token knows that it will pass with probability
sum over x of min(p(x), q(x)), and nothing more: no predictor that does not know the token drawn has a greater AUROC.
And a perfectly calibrated model has a calibration error too, by the chance of the outcomes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from statsmodels.genmod.families import Binomial
from statsmodels.genmod.generalized_linear_model import GLM

from specstudy.analysis.bootstrap import (
    AnalysisSettings,
    Estimate,
    Floats,
    Resampled,
    estimate,
    resampled,
    resampled_totals,
)
from specstudy.analysis.correlation import why_constant
from specstudy.analysis.entropy_bound import lower_bound
from specstudy.analysis.means import ratio

N_BINS = 200
N_GROUPS = 10
N_FOLDS = 5
# Fewer prompts than this cannot be left out in turn.
FEWEST_PROMPTS = 5
N_SIMULATIONS = 400


@dataclass(frozen=True)
class Predictor:
    """A column of the tested tokens; `sign` is +1 where more of it should mean acceptance.

    `probability`: what makes a probability of acceptance of the column; None: a logistic regression does.
    """

    name: str
    column: str
    sign: float
    probability: Callable[[Floats], Floats] | None = None


PREDICTORS = (
    Predictor("draft_entropy", "draft_entropy_bits", -1.0),
    Predictor("draft_top_prob", "draft_top_prob", 1.0),
    Predictor("draft_top_margin", "draft_top_margin", 1.0),
    Predictor("drafted_prob", "p_draft", 1.0),
    Predictor("entropy_bound", "draft_entropy_bits", -1.0, lambda bits: lower_bound(bits * np.log(2))),
    Predictor("known_before_draw", "expected_accept", 1.0, lambda expected: expected),
)
REFERENCE, CEILING = PREDICTORS[0].name, PREDICTORS[-1].name


@dataclass(frozen=True)
class Binned:
    """A predictor over prompts and bins: accepted and rejected tokens (prompts, bins), least acceptable bin first, and
    the probability of acceptance said for each, from the other prompts."""

    accepted: Floats
    rejected: Floats
    predicted: Floats

    @property
    def n_tokens(self) -> int:
        return round(float(self.accepted.sum() + self.rejected.sum()))

    @property
    def group_of_bin(self) -> NDArray[np.intp]:
        """Bins taken together into `N_GROUPS` groups of equal numbers of tokens: int (bins,)."""
        sizes = (self.accepted + self.rejected).sum(axis=0)
        middles = (np.cumsum(sizes) - sizes / 2) / sizes.sum()
        groups: NDArray[np.intp] = np.minimum((middles * N_GROUPS).astype(np.intp), N_GROUPS - 1)
        return groups


def binned(tested: pd.DataFrame, predictor: Predictor) -> Binned | str:
    """The predictor's counts and cross-validated probabilities, or why there are none."""
    tokens = tested[[predictor.column, "group", "accepted"]].dropna()
    scores = predictor.sign * tokens[predictor.column].to_numpy(dtype=np.float64)
    prompts, names = pd.factorize(tokens["group"].astype(object), sort=True)
    outcomes = tokens["accepted"].to_numpy(dtype=np.float64)
    if len(names) < FEWEST_PROMPTS:
        return f"{len(names)} prompts with tested tokens; {FEWEST_PROMPTS} are needed to leave some out"
    for what, values in (("the predictor", scores), ("acceptance", outcomes)):
        if reason := why_constant(values):
            return f"{what} {reason}"
    edges = np.unique(np.quantile(scores, np.linspace(0, 1, N_BINS + 1)[1:-1]))
    bins = np.digitize(scores, edges)
    shape = (len(names), len(edges) + 1)
    cells = prompts * shape[1] + bins
    accepted, rejected = (
        np.bincount(cells, weights, np.prod(shape)).reshape(shape).astype(np.float64)
        for weights in (outcomes, 1 - outcomes)
    )
    sizes = np.bincount(bins, minlength=shape[1])
    middles = np.bincount(bins, scores, shape[1]) / np.maximum(sizes, 1)
    used = sizes > 0
    accepted, rejected, middles = accepted[:, used], rejected[:, used], middles[used]
    if predictor.probability:
        told = predictor.probability(predictor.sign * middles).clip(0.0, 1.0)
        return Binned(accepted, rejected, np.broadcast_to(told, accepted.shape))
    predicted = _cross_validated(accepted, rejected, middles)
    return predicted if isinstance(predicted, str) else Binned(accepted, rejected, predicted)


def _cross_validated(accepted: Floats, rejected: Floats, scores: Floats) -> Floats | str:
    """Probabilities (prompts, bins) by logistic regressions that have not seen the prompt; folds are dealt in turn."""
    predicted = np.empty_like(accepted)
    fold_of_prompt = np.arange(len(accepted)) % N_FOLDS
    design = np.column_stack([np.ones(len(scores)), (scores - scores.mean()) / scores.std()])
    for fold in range(N_FOLDS):
        left_out = fold_of_prompt == fold
        counts = np.column_stack([accepted[~left_out].sum(axis=0), rejected[~left_out].sum(axis=0)])
        seen = counts.sum(axis=1) > 0
        with warnings.catch_warnings():
            # Without overlap the fit runs away; the check below says so.
            warnings.simplefilter("ignore")
            fit = GLM(counts[seen], design[seen], family=Binomial()).fit()
            predicted[left_out] = fit.predict(design)
        if not fit.converged or not np.isfinite(fit.params).all():
            return "no logistic regression fits"
    return predicted


def auroc(data: Binned, settings: AnalysisSettings) -> Estimate:
    """The share of pairs of an accepted and a rejected token that the predictor puts in this order, ties a half."""
    n_bins = data.accepted.shape[1]

    def area(sums: Floats) -> Floats:
        return _auroc(sums[:, :n_bins], sums[:, n_bins:])

    sampled = resampled_totals(np.hstack([data.accepted, data.rejected]), area, settings)
    return estimate(data.n_tokens, sampled, settings.confidence)


def _auroc(accepted: Floats, rejected: Floats) -> Floats:
    """AUROC from counts (..., bins), bins in order of the predictor: (...,)."""
    rejected_below = np.cumsum(rejected, axis=-1) - rejected / 2
    pairs = accepted.sum(axis=-1) * rejected.sum(axis=-1)
    area: Floats = np.where(pairs > 0, np.sum(accepted * rejected_below, axis=-1), np.nan) / np.where(
        pairs > 0, pairs, 1
    )
    return area


def brier_score(data: Binned, settings: AnalysisSettings) -> Estimate:
    """Mean squared distance of the predicted probability from the outcome (Brier 1950)."""
    squares = data.accepted * (1 - data.predicted) ** 2 + data.rejected * data.predicted**2
    return ratio(squares.sum(axis=1), (data.accepted + data.rejected).sum(axis=1), settings)


def calibration_error(data: Binned, settings: AnalysisSettings) -> Estimate:
    """Mean distance of predicted from observed acceptance over ten equal groups (expected calibration error)."""
    gaps = _grouped(data, data.accepted - (data.accepted + data.rejected) * data.predicted)

    def error(sums: Floats) -> Floats:
        distances: Floats = np.abs(sums[:, :-1]).sum(axis=1) / np.maximum(sums[:, -1], 1.0)
        return distances

    sampled = resampled_totals(np.column_stack([gaps, _sizes(data)]), error, settings)
    return estimate(data.n_tokens, sampled, settings.confidence)


def calibration_error_by_chance(data: Binned, settings: AnalysisSettings) -> Estimate:
    """The calibration error of a perfectly calibrated model that says these probabilities of as many tokens: mean and
    interval over simulated outcomes."""
    error = chance_errors(data, np.random.default_rng([settings.seed, data.n_tokens, 2]))
    low, high = np.quantile(error, settings.tails)
    return Estimate(data.n_tokens, float(error.mean()), float(low), float(high))


def chance_errors(data: Binned, rng: np.random.Generator, repetitions: int = N_SIMULATIONS) -> Floats:
    """Calibration errors where every token is accepted with the probability that was said: (repetitions,)."""
    sizes = (data.accepted + data.rejected).round().astype(np.intp)
    held = sizes > 0
    n, said, group = sizes[held], data.predicted[held], np.broadcast_to(data.group_of_bin, sizes.shape)[held]
    members = (group[:, None] == np.arange(N_GROUPS)).astype(np.float64)
    distances = [np.abs((rng.binomial(n, said) - n * said) @ members).sum() for _ in range(repetitions)]
    errors: Floats = np.array(distances, dtype=np.float64) / n.sum()
    return errors


def calibration(data: Binned, settings: AnalysisSettings) -> Iterator[tuple[float, Estimate]]:
    """The reliability diagram: in each group, the mean predicted probability and the share accepted."""
    sizes = _grouped(data, data.accepted + data.rejected)
    predicted = _grouped(data, (data.accepted + data.rejected) * data.predicted)
    for group, accepted in enumerate(_grouped(data, data.accepted).T):
        if sizes[:, group].sum():
            yield float(predicted[:, group].sum() / sizes[:, group].sum()), ratio(accepted, sizes[:, group], settings)


def _grouped(data: Binned, cells: Floats) -> Floats:
    members = data.group_of_bin[:, None] == np.arange(N_GROUPS)
    grouped: Floats = cells @ members.astype(np.float64)
    return grouped


def _sizes(data: Binned) -> Floats:
    sizes: Floats = (data.accepted + data.rejected).sum(axis=1)
    return sizes


MEASURES: dict[str, Callable[[Binned, AnalysisSettings], Estimate]] = {
    "auroc": auroc,
    "brier_score": brier_score,
    "calibration_error": calibration_error,
    "calibration_error_by_chance": calibration_error_by_chance,
}
COMPARED = ("auroc", "brier_score", "calibration_error")
"""The metrics of which differences between predictors are taken."""
SHARE_OF_CEILING = "auroc_share"


def difference(first: Binned, second: Binned, metric: str, settings: AnalysisSettings) -> Estimate:
    """A metric of one predictor minus that of another on the same tokens, resampled together."""
    return _compared(first, second, metric, np.subtract, settings)


def share_of_ceiling(data: Binned, ceiling: Binned, settings: AnalysisSettings) -> Estimate:
    """(AUROC - 0.5) / (AUROC of what is known before the draw - 0.5), on the same tokens, resampled together."""
    return _compared(data, ceiling, "auroc", lambda own, most: (own - 0.5) / (most - 0.5), settings)


def _compared(
    first: Binned, second: Binned, metric: str, combine: Callable[[Any, Any], Any], settings: AnalysisSettings
) -> Estimate:
    a, b = (MEASURES[metric](data, settings) for data in (first, second))
    if not isinstance(a.uncertainty, Resampled) or not isinstance(b.uncertainty, Resampled):
        return Estimate(a.n, null_reason=a.null_reason or b.null_reason)
    if first.n_tokens != second.n_tokens or len(first.accepted) != len(second.accepted):
        return Estimate(a.n, null_reason="the two predictors were not measured on the same tokens")
    known = [(u.value, u.samples, u.jackknife) for u in (a.uncertainty, b.uncertainty)]
    return estimate(a.n, resampled(*map(combine, *known)), settings.confidence)
