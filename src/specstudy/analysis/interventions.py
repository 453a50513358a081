"""Interventions on one link of the chain: versions of prompts, paired within the original."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.join import Tables, frame_of, groups_of
from specstudy.analysis.links import link_verdicts
from specstudy.analysis.version_effects import lowered_masses, version_effects, version_frame
from specstudy.analysis.version_models import version_models
from specstudy.condition import Condition
from specstudy.records import LinkVerdict, VersionEffect, VersionModel


@dataclass(frozen=True)
class Interventions:
    """`versions`: a row a version, indexed by prompt_id, with the columns of `prompt_versions`, its original's `group`,
    the measures of `version_frame` and those of `lowered_masses` (NaN where not measured). `effects`, `links`,
    `models`: rows of `version_effects`, `link_verdicts`, `version_models`. All empty where a run has no versions."""

    versions: pd.DataFrame
    effects: list[VersionEffect]
    links: list[LinkVerdict]
    models: list[VersionModel]

    def effect(self, kind: str, dose: int, measure: str) -> VersionEffect | None:
        """The paired effect with these keys, or None."""
        wanted = (kind, dose, measure)
        return next((row for row in self.effects if (row.kind, row.dose, row.measure) == wanted), None)


def analyze_interventions(tables: Tables, primary: Condition | None, settings: AnalysisSettings) -> Interventions:
    """All that a run's versions tell; `tables` with the rows of altered prompts."""
    measured = version_frame(tables, primary)
    effects = version_effects(tables, measured, settings)
    described = frame_of(tables, "prompt_versions").set_index("prompt_id")
    described = described.join([measured, lowered_masses(tables)], how="left")
    described = described.assign(group=groups_of(tables, described.index.to_series()))
    return Interventions(
        described, effects, link_verdicts(described, effects, settings), version_models(described, settings)
    )
