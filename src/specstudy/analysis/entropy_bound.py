"""How the bound behind the `bound` stop rule holds on the verifier's own text, where no rule has censored anything.

AdaEDL (Agrawal et al. 2024) and SVIP (Zhang et al. 2024) stop a draft by 1 - sqrt(c * H), H the draft's entropy in
nats at temperature 1. It is a heuristic, not a proven bound: counted here is how often the expected acceptance lies
below it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import (
    AnalysisSettings,
    Codes,
    Estimate,
    Floats,
    drawn_together,
    estimate,
    resampled_quantile,
    too_few,
)
from specstudy.analysis.means import nested_mean, numbered
from specstudy.records import EntropyBound

COEFFICIENT = 0.2
LEVEL = 0.95
# Below this the ratio to H is one of rounding errors.
MIN_ENTROPY_NATS = 1e-3
_GRID = 2048


def entropy_bounds(decoded: pd.DataFrame, settings: AnalysisSettings) -> list[EntropyBound]:
    """Both measures over all decoded tokens and by category; none without tokens that the draft was run over."""
    kept = decoded[(decoded["draft_entropy_bits"].notna() & decoded["expected_accept"].notna()).to_numpy(dtype=bool)]
    if kept.empty:
        return []
    categories = kept["category"].astype(object)
    groups = [("all", kept), *((str(name), kept[categories == name]) for name in sorted(set(categories)))]
    return [row for category, tokens in groups for row in _rows(category, tokens, settings)]


def lower_bound(entropy_nats: Floats, coefficient: float = COEFFICIENT) -> Floats:
    """1 - sqrt(c * H), negative where H is large: the heuristic estimate of the least acceptance."""
    return 1.0 - np.sqrt(coefficient * entropy_nats)


def _rows(category: str, tokens: pd.DataFrame, settings: AnalysisSettings) -> Iterator[EntropyBound]:
    nats, accepted = tokens["draft_entropy_bits"].to_numpy() * math.log(2), tokens["expected_accept"].to_numpy()
    used = nats >= MIN_ENTROPY_NATS
    nats, accepted, groups = nats[used], accepted[used], tokens["group"][used].cat.remove_unused_categories()
    codes, n_groups = numbered(groups)
    violated = nested_mean((accepted < lower_bound(nats)).astype(np.float64), codes, n_groups, settings)
    c95 = percentile((1.0 - accepted) ** 2 / nats, codes, LEVEL, settings)
    for measure, coefficient, found in (("violated_share", COEFFICIENT, violated), ("c95", None, c95)):
        yield EntropyBound(
            category=category,
            measure=measure,
            coefficient=coefficient,
            n=found.n,
            n_excluded=int((~used).sum()),
            **found.row(),
        )


def percentile(values: Floats, groups: Codes, level: float, settings: AnalysisSettings) -> Estimate:
    """The smallest of values (rows,) that `level` of them do not exceed, with an interval over prompts; `groups` int
    (rows,): what is drawn together, a prompt or several.

    Resampled percentiles are looked up among at most 2048 of the values, equally many apart.
    """
    n, (codes, n_groups) = len(values), drawn_together(groups, np.ones(len(values), dtype=np.bool_))
    if not n:
        return Estimate(0, null_reason="no tokens")
    value = float(np.quantile(values, level, method="inverted_cdf"))
    if reason := too_few(n_groups):
        return Estimate(n, value, null_reason=reason)
    grid = np.unique(np.quantile(values, np.linspace(0, 1, min(n, _GRID)), method="inverted_cdf"))
    counts = settings.counts(n_groups)
    # How many values of each group lie at or below each place of the grid: (groups, grid).
    places = np.searchsorted(grid, values, side="left")
    shape = (n_groups, len(grid))
    at = np.bincount(codes * shape[1] + places, minlength=n_groups * shape[1]).reshape(shape)
    below = at.cumsum(axis=1, dtype=np.float64)
    samples = grid[(counts @ below >= level * (counts @ below[:, -1])[:, None]).argmax(axis=1)]
    return estimate(n, resampled_quantile(value, samples, n_groups), settings.confidence)
