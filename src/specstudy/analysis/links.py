"""Each link of the chain, asked of each kind of alteration: was the first measure moved, and did the next follow?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.records import LinkVerdict, VersionEffect

Reading = Literal["as_claimed", "other_way", "not_shown", "not_moved", "not_measured"]


@dataclass(frozen=True)
class Link:
    """`moved` and `watched` are measures (`moved` of None: attention, moved by hiding a position); `sign` is that of
    `watched` where `moved` rises (where a sink is hidden), as the chain has it."""

    name: str
    moved: str | None
    watched: str
    sign: int


OF_CONTEXTS = (
    Link("attention to entropy", "context_health_soft", "mean_entropy_bits", -1),
    Link("entropy to acceptance", "mean_entropy_bits", "alpha_expected", -1),
    Link("attention to acceptance", "context_health_soft", "alpha_expected", 1),
)
OF_HIDING = (
    Link("attention to entropy", None, "mean_entropy_bits", 1),
    Link("entropy to acceptance", "mean_entropy_bits", "alpha_expected", -1),
    Link("attention to acceptance", None, "alpha_expected", -1),
)
# As the series has it: attention taken from a sink is spread more evenly.
OF_LOWERING = (
    Link("attention to entropy", "mass_moved", "mean_entropy_bits", -1),
    Link("entropy to acceptance", "mean_entropy_bits", "mean_expected_accept", -1),
    Link("attention to acceptance", "mass_moved", "mean_expected_accept", 1),
)
OF_TEMPERATURES = (Link("entropy to acceptance", "mean_sampling_entropy_bits", "alpha_expected", -1),)


def link_verdicts(
    versions: pd.DataFrame, effects: Sequence[VersionEffect], settings: AnalysisSettings
) -> list[LinkVerdict]:
    """A row a link and kind, at the kind's largest dose, and at its least where doses go below 0 (at that alone where
    all do). Kinds that others are compared with are not asked."""
    found = {(row.kind, row.dose, row.measure): row for row in effects}
    altered = versions[versions["control_id"].notna().to_numpy(dtype=bool)]
    controls = control_kinds(versions)
    verdicts = []
    for kind, rows in altered.groupby("kind", sort=False):
        least, largest = int(rows["dose"].min()), int(rows["dose"].max())
        ends = ([least] if least < 0 else []) + ([largest] if largest >= 0 else [])
        for link, dose in product(_links(rows), ends):
            if kind not in controls:
                moved = found[str(kind), dose, link.moved] if link.moved else None
                verdicts.append(_verdict(link, moved, found[str(kind), dose, link.watched], settings))
    return verdicts


def control_kinds(versions: pd.DataFrame) -> set[str]:
    """The kinds that others are compared with, the unaltered one included."""
    return set(versions.loc[versions.index.isin(versions["control_id"].dropna()), "kind"])


def _links(rows: pd.DataFrame) -> tuple[Link, ...]:
    if rows["temperature"].notna().any():
        return OF_TEMPERATURES
    if rows["lowered"].notna().any():
        return OF_LOWERING
    return OF_HIDING if rows["hidden"].notna().any() else OF_CONTEXTS


def _verdict(
    link: Link, moved: VersionEffect | None, watched: VersionEffect, settings: AnalysisSettings
) -> LinkVerdict:
    return LinkVerdict(
        link=link.name,
        kind=watched.kind,
        dose=watched.dose,
        moved=link.moved,
        moved_difference=moved.difference if moved else None,
        moved_ci_low=moved.ci_low if moved else None,
        moved_ci_high=moved.ci_high if moved else None,
        watched=link.watched,
        n=watched.n,
        watched_difference=watched.difference,
        watched_ci_low=watched.ci_low,
        watched_ci_high=watched.ci_high,
        p_adjusted=watched.p_adjusted,
        control_difference=watched.control_difference,
        control_ci_low=watched.control_ci_low,
        control_ci_high=watched.control_ci_high,
        reading=_reading(link, moved, watched, settings),
    )


def _reading(link: Link, moved: VersionEffect | None, watched: VersionEffect, settings: AnalysisSettings) -> Reading:
    if watched.ci_low is None or (link.moved and (moved is None or moved.ci_low is None)):
        return "not_measured"
    direction = _direction(moved, settings) if moved else 1
    if direction == 0:
        return "not_moved"
    followed = _direction(watched, settings)
    if followed == 0:
        return "not_shown"
    return "as_claimed" if followed == direction * link.sign else "other_way"


def _direction(row: VersionEffect, settings: AnalysisSettings) -> int:
    """1 or -1 where a measure was shown to move: the interval leaves 0 aside, and so does p after its adjustment."""
    assert row.ci_low is not None
    assert row.ci_high is not None
    if row.p_adjusted is None or row.p_adjusted > 1 - settings.confidence or row.ci_low <= 0 <= row.ci_high:
        return 0
    return 1 if row.ci_low > 0 else -1
