"""Sinks by the part that a token plays in the template, and the question of the second sink at the boundary."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings, Codes, Estimate
from specstudy.analysis.means import nested_mean
from specstudy.analysis.sinks.positions import ATTENTION_OF, BOUNDARY, PLACES, Z_MEASURES
from specstudy.records import SinkRole

WHOLE_PLACE = "all"
"""What stands for the structural role in a row about a whole place."""

MILD_SINK_Z = 2.0
"""The first threshold of mayankpallai 2026 (part 2), whose run of z 4.4 to 5.4 at the boundary is a milder sink."""


def sinks_by_role(positions: pd.DataFrame, settings: AnalysisSettings) -> list[SinkRole]:
    """A row for each z-score, place and role, and one for the boundary as a whole; in reading order.

    `positions` is what `position_frame` gives. Intervals are over all prompts, those without the role included.
    """
    n_groups = int(positions["group"].nunique())
    rows = []
    for place, role, part in _parts(positions):
        codes: Codes = part["group"].to_numpy().astype(np.intp)
        for measure in Z_MEASURES:
            z = part[measure].to_numpy()
            over = np.where(np.isfinite(z), z > settings.sink_threshold, np.nan)
            incidence = nested_mean(over, codes, n_groups, settings)
            mean_z = nested_mean(z, codes, n_groups, settings)
            scored = part[np.isfinite(z)]
            rows.append(_row(measure, place, role, scored, incidence, mean_z, _why_null(part, measure)))
    return rows


def _parts(positions: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    for place in PLACES:
        here = positions[positions["place"] == place]
        order = here.groupby("structural_role")["position"].median()
        if place == BOUNDARY:  # prompts differ in length: count from the end
            ends = here["position"] - here.groupby("prompt")["position"].transform("max")
            order = ends.groupby(here["structural_role"]).median()
        for role in order.sort_values(kind="stable").index:
            yield place, str(role), here[here["structural_role"] == role]
        if place == BOUNDARY and len(here):
            yield place, WHOLE_PLACE, here


def _row(
    measure: str,
    place: str,
    role: str,
    scored: pd.DataFrame,
    incidence: Estimate,
    mean_z: Estimate,
    why_null: str | None,
) -> SinkRole:
    return SinkRole(
        measure=measure,
        place=place,
        structural_role=role,
        n_prompts=int(scored["prompt"].nunique()),
        n_prompts_mild=int((scored.groupby("prompt")[measure].mean() > MILD_SINK_Z).sum()),
        n_positions=len(scored),
        **incidence.columns("incidence", "incidence_ci_"),
        **mean_z.columns("mean_z", "mean_z_ci_"),
        is_mild_sink=mild_sink(mean_z),
        null_reason=why_null or _why_no_interval(incidence, mean_z),
    )


def _why_no_interval(incidence: Estimate, mean_z: Estimate) -> str | None:
    reasons = {"incidence": incidence.null_reason, "mean z": mean_z.null_reason}
    return "; ".join(f"interval of {name}: {why}" for name, why in reasons.items() if why) or None


def mild_sink(mean_z: Estimate) -> bool | None:
    """True where the interval of a mean z lies over `MILD_SINK_Z`, false where all of it lies under, else None."""
    if mean_z.low is None or mean_z.high is None:
        return None
    return True if mean_z.low > MILD_SINK_Z else False if mean_z.high < MILD_SINK_Z else None


def _why_null(part: pd.DataFrame, measure: str) -> str | None:
    """The reason why no position of a part has this z-score, or None if one has it."""
    if part[measure].notna().any():
        return None
    if part[ATTENTION_OF[measure]].isna().all():
        if measure == "z_window":
            return "inside the observation window: only positions before it are seen by all of its queries"
        return "attention from the answer's tokens was not measured"
    reasons = part["null_reason_generated" if measure == "z_generated" else "null_reason"].dropna()
    return str(reasons.mode().iloc[0]) if len(reasons) else "z-score not defined"
