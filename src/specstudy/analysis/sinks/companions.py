"""How context health and its companions are distributed, and how they go together with each other and with length."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.correlation import correlate, why_constant
from specstudy.analysis.means import numbered
from specstudy.analysis.measures import CONTEXT_MEASURES
from specstudy.records import ContextCorrelation, ContextDistribution

LENGTH = "n_tokens"
NOTHING = "nothing"


def distributions(prompts: pd.DataFrame) -> list[ContextDistribution]:
    """A row for each context measure over prompts; `degenerate` says why it can correlate with nothing."""
    return [_distribution(name, prompts[name].dropna().to_numpy(dtype=np.float64)) for name in CONTEXT_MEASURES]


def _distribution(measure: str, values: np.ndarray) -> ContextDistribution:
    known = len(values) > 0
    quantiles = np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).tolist() if known else [None] * 5
    times = np.unique(values.round(9), return_counts=True)[1]
    return ContextDistribution(
        measure=measure,
        n_prompts=len(values),
        minimum=quantiles[0],
        lower_quartile=quantiles[1],
        median=quantiles[2],
        upper_quartile=quantiles[3],
        maximum=quantiles[4],
        n_distinct=len(times),
        share_at_commonest=float(times.max() / len(values)) if known else None,
        degenerate=why_constant(values) if known else "is not defined for any prompt",
    )


def context_correlations(prompts: pd.DataFrame, settings: AnalysisSettings) -> list[ContextCorrelation]:
    """Spearman over prompts of every pair of context measures: as they are, and with ln n_tokens held constant."""
    groups = numbered(prompts["group"])[0]
    log_length = np.log(prompts[[LENGTH]].to_numpy(dtype=np.float64))
    rows = []
    for x, y in itertools.combinations(CONTEXT_MEASURES, 2):
        for held, covariates in ((NOTHING, None), (LENGTH, log_length)):
            if held in (x, y):
                continue
            a, b = (prompts[name].to_numpy(dtype=np.float64) for name in (x, y))
            estimate = correlate(a, b, groups, "spearman", settings, covariates)
            rows.append(ContextCorrelation(x=x, y=y, held_constant=held, n=estimate.n, **estimate.row()))
    return rows
