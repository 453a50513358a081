"""How the chain works where it can be taken apart: token by token, within and across categories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from specstudy.analysis import predictors
from specstudy.analysis.between_within import between_within
from specstudy.analysis.bootstrap import AnalysisSettings, Estimate
from specstudy.analysis.correlations import Pair, holm
from specstudy.analysis.predictors import CEILING, PREDICTORS, REFERENCE, SHARE_OF_CEILING, Binned
from specstudy.analysis.token_model import token_model
from specstudy.records import BetweenWithinTerm, CalibrationBin, Correlation, PredictorScore, TokenModelTerm


@dataclass(frozen=True)
class Mechanism:
    """Rows of the tables of the same names: `predictors`, `calibration`, `token_model`, `between_within`.

    `scores`: (predictor, metric, minus) -> estimate, `minus` empty or the predictor that is subtracted. `terms`: the
    estimates behind the rows. `reversals`: pairs of measures whose correlation turns round within
    categories (Simpson's paradox), pooled and within.
    """

    predictors: list[PredictorScore]
    calibration: list[CalibrationBin]
    token_model: list[TokenModelTerm]
    between_within: list[BetweenWithinTerm]
    scores: dict[tuple[str, str, str], Estimate]
    terms: dict[str, Estimate]
    reversals: list[tuple[Pair, Correlation, Correlation]]


def mechanism(
    decoded: pd.DataFrame,
    tested: pd.DataFrame | None,
    correlations: Mapping[Pair, Correlation],
    settings: AnalysisSettings,
) -> Mechanism:
    """Everything about decoded tokens and the primary condition's drafted ones (`tested`; None where nothing was
    drafted)."""
    none = Estimate(0, null_reason="no token was drafted and tested")
    binned = {p.name: "" if tested is None else predictors.binned(tested, p) for p in PREDICTORS}
    scores = dict.fromkeys(_score_keys(), none) if tested is None else dict(_scores(binned, settings))
    terms = {"draft_entropy_bits": none} if tested is None else token_model(tested, settings)
    n_prompts = 0 if tested is None else tested["prompt_id"].nunique()
    return Mechanism(
        predictors=[_score_row(key, e, n_prompts) for key, e in scores.items()],
        calibration=list(_calibration_rows(binned, settings)),
        token_model=_term_rows(terms, n_prompts),
        between_within=between_within(decoded, settings),
        scores=scores,
        terms=terms,
        reversals=list(reversals(correlations)),
    )


def reversals(correlations: Mapping[Pair, Correlation]) -> Iterator[tuple[Pair, Correlation, Correlation]]:
    """Pairs whose pooled correlation and that within categories have opposite signs, both intervals without zero."""
    for pair, pooled in correlations.items():
        within = correlations.get(pair._replace(subset="within_category"))
        if (pair.level, pair.subset) == ("prompt", "all") and within and _sign(pooled) * _sign(within) < 0:
            yield pair, pooled, within


def _sign(record: Correlation) -> int:
    """+1 or -1 where the interval lies on one side of zero, else 0."""
    if record.ci_low is None or record.ci_high is None:
        return 0
    return 1 if record.ci_low > 0 else -1 if record.ci_high < 0 else 0


def _score_keys() -> Iterator[tuple[str, str, str]]:
    for predictor in PREDICTORS:
        for metric in predictors.MEASURES:
            yield predictor.name, metric, ""
            if predictor.name != REFERENCE and metric in predictors.COMPARED:
                yield predictor.name, metric, REFERENCE
        if predictor.name != CEILING:
            yield predictor.name, SHARE_OF_CEILING, ""


def _scores(
    binned: dict[str, Binned | str], settings: AnalysisSettings
) -> Iterator[tuple[tuple[str, str, str], Estimate]]:
    for name, metric, minus in _score_keys():
        data, other = binned[name], binned[minus or CEILING]
        if isinstance(data, str):
            found = Estimate(0, null_reason=data)
        elif metric in predictors.MEASURES and not minus:
            found = predictors.MEASURES[metric](data, settings)
        elif isinstance(other, str):
            found = Estimate(0, null_reason=other)
        elif minus:
            found = predictors.difference(data, other, metric, settings)
        else:
            found = predictors.share_of_ceiling(data, other, settings)
        yield (name, metric, minus), found


def _score_row(key: tuple[str, str, str], e: Estimate, n_prompts: int) -> PredictorScore:
    name, metric, minus = key
    return PredictorScore(
        predictor=name,
        metric=metric,
        minus=minus,
        n_tokens=e.n,
        n_prompts=n_prompts,
        **e.row(),
    )


def _calibration_rows(binned: dict[str, Binned | str], settings: AnalysisSettings) -> Iterator[CalibrationBin]:
    for name, data in binned.items():
        if isinstance(data, str):
            continue
        for number, (predicted, e) in enumerate(predictors.calibration(data, settings)):
            yield CalibrationBin(
                predictor=name,
                bin=number,
                n_tokens=e.n,
                predicted=predicted,
                **e.columns("accepted"),
                null_reason=e.null_reason,
            )


def _term_rows(terms: dict[str, Estimate], n_prompts: int) -> list[TokenModelTerm]:
    tested = [name for name in terms if name != "constant"]
    adjusted = dict(zip(tested, holm([terms[name].p_value for name in tested]), strict=True))
    return [
        TokenModelTerm(
            term=name,
            n_tokens=e.n,
            n_prompts=n_prompts,
            **e.row(),
            p_value=e.p_value,
            p_adjusted=adjusted.get(name),
        )
        for name, e in terms.items()
    ]
