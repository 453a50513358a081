"""What each threshold flags, and which threshold a stated rule recommends."""

from __future__ import annotations

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings, Codes, Estimate, Floats, too_few
from specstudy.analysis.means import nested_mean
from specstudy.analysis.sinks.positions import CONTENT
from specstudy.records import SinkAnswer, SinkThreshold

SWEPT_MEASURES = ("z_score", "z_window")
FLAGGED_CONTENT_ALLOWED = 0.01
"""The rule: the smallest threshold at which no larger share of content positions is flagged."""
RECOMMENDED = "recommended_threshold"


def threshold_sweep(positions: pd.DataFrame, settings: AnalysisSettings) -> list[SinkThreshold]:
    """The shares of structural and of content positions that each threshold flags, for each z-score."""
    n_groups = int(positions["group"].nunique())
    rows = []
    for measure in SWEPT_MEASURES:
        scored = positions[positions[measure].notna().to_numpy()]
        is_content = (scored["place"] == CONTENT).to_numpy()
        for threshold in sorted(settings.thresholds):
            structural, content = (
                _flagged(part, measure, threshold, n_groups, settings)
                for part in (scored[~is_content], scored[is_content])
            )
            reasons = {"structural": structural.null_reason, "content": content.null_reason}
            rows.append(
                SinkThreshold(
                    measure=measure,
                    threshold=threshold,
                    n_structural=structural.n,
                    n_content=content.n,
                    **structural.columns("share_structural", "share_structural_ci_"),
                    **content.columns("share_content", "share_content_ci_"),
                    null_reason="; ".join(f"{name}: {why}" for name, why in reasons.items() if why) or None,
                )
            )
    return rows


def _flagged(rows: pd.DataFrame, measure: str, threshold: float, n_groups: int, settings: AnalysisSettings) -> Estimate:
    codes: Codes = rows["group"].to_numpy().astype(np.intp)
    flags: Floats = (rows[measure].to_numpy() > threshold).astype(np.float64)
    return nested_mean(flags, codes, n_groups, settings)


def recommended_thresholds(positions: pd.DataFrame, settings: AnalysisSettings) -> list[SinkAnswer]:
    """The smallest swept threshold that flags at most 1 % of content positions, for each z-score.

    The interval is the percentile interval over samples of prompts (the choice is among steps, so it is not smooth); a
    sample in which even the largest threshold flags more counts as beyond it.
    """
    rows = []
    for measure in SWEPT_MEASURES:
        estimate = _recommended(positions, measure, settings)
        rows.append(SinkAnswer(quantity=RECOMMENDED, measure=measure, n=estimate.n, **estimate.row()))
    return rows


def _recommended(positions: pd.DataFrame, measure: str, settings: AnalysisSettings) -> Estimate:
    content = positions[(positions["place"] == CONTENT).to_numpy() & positions[measure].notna().to_numpy()]
    codes, names = pd.factorize(content["group"], sort=True)
    n, n_groups = len(content), len(names)
    if not n:
        return Estimate(0, null_reason="no content position carries this z-score")
    steps = np.sort(np.array(settings.thresholds))
    over = content[measure].to_numpy()[:, None] > steps
    flagged = np.stack([np.bincount(codes, over[:, i], n_groups) for i in range(len(steps))], axis=1)
    sizes = np.bincount(codes, minlength=n_groups).astype(np.float64)

    def smallest(counts: np.ndarray) -> np.ndarray:
        allowed = counts @ flagged <= FLAGGED_CONTENT_ALLOWED * (counts @ sizes)[:, None] + 1e-9
        return np.where(allowed.any(axis=1), steps[allowed.argmax(axis=1)], np.inf)

    value = float(smallest(np.ones((1, n_groups)))[0])
    if np.isinf(value):
        return Estimate(n, null_reason=f"over 1 % of content positions are flagged even at {steps[-1]:g}")
    if reason := too_few(n_groups):
        return Estimate(n, value, null_reason=reason)
    low, high = np.quantile(smallest(settings.counts(n_groups)), settings.tails, method="inverted_cdf")
    if np.isinf(high):
        why = f"in some samples of prompts over 1 % are flagged even at {steps[-1]:g}"
        return Estimate(n, value, null_reason=why)
    return Estimate(n, value, float(low), float(high))
