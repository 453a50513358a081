"""Each arrow of the chain, asked of each kind of alteration: was the first measure moved, and did the next follow?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.records import ArrowVerdict, VersionEffect

Reading = Literal["as_claimed", "other_way", "not_shown", "not_moved", "not_measured"]


@dataclass(frozen=True)
class Arrow:
    """`moved` and `watched` are measures (`moved` of None: attention, moved by hiding a position); `sign` is that of
    `watched` where `moved` rises (where a sink is hidden), as the chain has it."""

    name: str
    moved: str | None
    watched: str
    sign: int


OF_CONTEXTS = (
    Arrow("attention to entropy", "context_health_soft", "mean_entropy_bits", -1),
    Arrow("entropy to acceptance", "mean_entropy_bits", "alpha_expected", -1),
    Arrow("attention to acceptance", "context_health_soft", "alpha_expected", 1),
)
OF_HIDING = (
    Arrow("attention to entropy", None, "mean_entropy_bits", 1),
    Arrow("entropy to acceptance", "mean_entropy_bits", "alpha_expected", -1),
    Arrow("attention to acceptance", None, "alpha_expected", -1),
)
OF_TEMPERATURES = (Arrow("entropy to acceptance", "mean_sampling_entropy_bits", "alpha_expected", -1),)


def arrow_verdicts(
    versions: pd.DataFrame, effects: Sequence[VersionEffect], settings: AnalysisSettings
) -> list[ArrowVerdict]:
    """A row an arrow and kind, at the kind's largest dose. Kinds that others are compared with are not asked."""
    found = {(row.kind, row.dose, row.measure): row for row in effects}
    altered = versions[versions["control_id"].notna().to_numpy(dtype=bool)]
    controls = control_kinds(versions)
    verdicts = []
    for kind, rows in altered.groupby("kind", sort=False):
        dose = int(rows["dose"].max())
        for arrow in _arrows(rows) if kind not in controls else ():
            moved = found[str(kind), dose, arrow.moved] if arrow.moved else None
            verdicts.append(_verdict(arrow, moved, found[str(kind), dose, arrow.watched], settings))
    return verdicts


def control_kinds(versions: pd.DataFrame) -> set[str]:
    """The kinds that others are compared with, the unaltered one included."""
    return set(versions.loc[versions.index.isin(versions["control_id"].dropna()), "kind"])


def _arrows(rows: pd.DataFrame) -> tuple[Arrow, ...]:
    if rows["temperature"].notna().any():
        return OF_TEMPERATURES
    return OF_HIDING if rows["hidden"].notna().any() else OF_CONTEXTS


def _verdict(
    arrow: Arrow, moved: VersionEffect | None, watched: VersionEffect, settings: AnalysisSettings
) -> ArrowVerdict:
    return ArrowVerdict(
        arrow=arrow.name,
        kind=watched.kind,
        dose=watched.dose,
        moved=arrow.moved,
        moved_difference=moved.difference if moved else None,
        moved_ci_low=moved.ci_low if moved else None,
        moved_ci_high=moved.ci_high if moved else None,
        watched=arrow.watched,
        n=watched.n,
        watched_difference=watched.difference,
        watched_ci_low=watched.ci_low,
        watched_ci_high=watched.ci_high,
        p_adjusted=watched.p_adjusted,
        control_difference=watched.control_difference,
        control_ci_low=watched.control_ci_low,
        control_ci_high=watched.control_ci_high,
        reading=_reading(arrow, moved, watched, settings),
    )


def _reading(arrow: Arrow, moved: VersionEffect | None, watched: VersionEffect, settings: AnalysisSettings) -> Reading:
    if watched.ci_low is None or (arrow.moved and (moved is None or moved.ci_low is None)):
        return "not_measured"
    direction = _direction(moved, settings) if moved else 1
    if direction == 0:
        return "not_moved"
    followed = _direction(watched, settings)
    if followed == 0:
        return "not_shown"
    return "as_claimed" if followed == direction * arrow.sign else "other_way"


def _direction(row: VersionEffect, settings: AnalysisSettings) -> int:
    """1 or -1 where a measure was shown to move: the interval leaves 0 aside, and so does p after its adjustment."""
    assert row.ci_low is not None
    assert row.ci_high is not None
    if row.p_adjusted is None or row.p_adjusted > 1 - settings.confidence or row.ci_low <= 0 <= row.ci_high:
        return 0
    return 1 if row.ci_low > 0 else -1
