"""Context health in the light: its distribution at every threshold, its jump, and when a weak sink raises it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from specstudy import formulas
from specstudy.analysis.bootstrap import AnalysisSettings, Estimate, Floats
from specstudy.analysis.means import nested_mean, numbered
from specstudy.analysis.sinks.positions import CONTENT
from specstudy.analysis.sinks.thresholds import SWEPT_MEASURES
from specstudy.records import HealthThreshold

_CANNOT_RISE = "at a threshold of 5 or more the severity is at its cap: another sink can only lower the score"


def health_sweep(positions: pd.DataFrame, settings: AnalysisSettings) -> list[HealthThreshold]:
    """Context health over prompts at each threshold, for each z-score, recomputed from the stored z-scores."""
    content = positions[(positions["place"] == CONTENT).to_numpy()]
    rows = []
    for measure in SWEPT_MEASURES:
        scored = content[content[measure].notna().to_numpy()]
        for threshold in sorted(settings.thresholds):
            rows.append(_row(health_by_prompt(scored, measure, threshold), measure, threshold, settings))
    return rows


def health_by_prompt(content: pd.DataFrame, measure: str, threshold: float) -> pd.DataFrame:
    """One row a prompt: group, n_content, n_sinks, health, and `health_with_next`: the score if the strongest content
    position that is not a sink were one too (NaN where every position is one).

    `content` holds content positions that carry the measure.
    """
    z, prompt = content[measure], content["prompt"]
    sinks = z.where(z > threshold).groupby(prompt)
    n_content, n_sinks, total = z.groupby(prompt).size(), sinks.count(), sinks.sum()
    weaker = z.where(z <= threshold).groupby(prompt).max()

    def health(n: pd.Series, sum_z: pd.Series) -> np.ndarray:
        severity = (sum_z / n.where(n > 0)).fillna(0.0)
        return formulas.health_of_sinks((n / n_content).to_numpy(), severity.to_numpy())

    with_next = np.where(weaker.notna(), health(n_sinks + 1, total + weaker.fillna(0.0)), np.nan)
    scores = {"n_sinks": n_sinks, "health": health(n_sinks, total), "health_with_next": with_next}
    return pd.DataFrame({"group": content.groupby("prompt")["group"].first(), "n_content": n_content, **scores})


def raised_by_next(health: pd.DataFrame, threshold: float, settings: AnalysisSettings) -> Estimate:
    """The share of prompts with a sink whose score rises if the next weaker content position counts as a sink too."""
    if threshold >= formulas.MAX_SEVERITY:
        return Estimate(0, null_reason=_CANNOT_RISE)
    asked = health[(health["n_sinks"] > 0) & health["health_with_next"].notna()]
    if not len(asked):
        return Estimate(0, null_reason="no prompt has a content sink and a weaker content position")
    raised: Floats = (asked["health_with_next"].to_numpy() > asked["health"].to_numpy() + 1e-9).astype(np.float64)
    return nested_mean(raised, *numbered(asked["group"]), settings)


def _row(health: pd.DataFrame, measure: str, threshold: float, settings: AnalysisSettings) -> HealthThreshold:
    raised = raised_by_next(health, threshold, settings)
    scores = health["health"].to_numpy()
    with_sink = scores[health["n_sinks"].to_numpy() > 0]
    quartiles = np.quantile(scores, [0.25, 0.5, 0.75]).tolist() if len(scores) else [None] * 3
    reasons = {
        "context health": None if len(scores) else "no prompt carries this z-score",
        "largest with a sink": None if len(with_sink) else "no prompt has a content sink",
        "raised": raised.null_reason,
    }
    return HealthThreshold(
        measure=measure,
        threshold=threshold,
        n_prompts=len(scores),
        n_with_a_sink=len(with_sink),
        minimum=float(scores.min()) if len(scores) else None,
        lower_quartile=quartiles[0],
        median=quartiles[1],
        upper_quartile=quartiles[2],
        largest_with_a_sink=float(with_sink.max()) if len(with_sink) else None,
        n_distinct=len(np.unique(scores.round(9))),
        share_at_ten=float((scores == formulas.MAX_HEALTH).mean()) if len(scores) else None,
        n_raisable=raised.n,
        **raised.columns("share_raised", "share_raised_ci_"),
        null_reason="; ".join(f"{name}: {why}" for name, why in reasons.items() if why) or None,
    )
