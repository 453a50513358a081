"""The whole analysis: tables in, answers out. Pure, and the same for the same tables and settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pandas as pd

from specstudy.analysis import acceptance
from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.claim_measures import with_bound, with_claim_measures
from specstudy.analysis.claim_tests import Evidence
from specstudy.analysis.claims import answer_claims
from specstudy.analysis.correlations import all_correlations
from specstudy.analysis.declarations import Declaration, declarations
from specstudy.analysis.entropy_bound import entropy_bounds
from specstudy.analysis.interventions import Interventions, analyze_interventions
from specstudy.analysis.join import Tables, decoded_tokens, prompt_frame, settings_measured, tested_tokens
from specstudy.analysis.means import means_by_category
from specstudy.analysis.measures import (
    CONTEXT_MEASURES,
    ENTROPY_MEASURE,
    measures_in,
    of_other_gammas,
    primary_setting,
    setting_suffixes,
)
from specstudy.analysis.mechanism import Mechanism, mechanism
from specstudy.analysis.reliability import reliabilities
from specstudy.analysis.routing.study import RoutingAnalysis, analyze_routing
from specstudy.analysis.setting_comparison import SettingComparison, compare_settings
from specstudy.analysis.sinks.study import SinkAnalysis, analyze_sinks
from specstudy.analysis.version_effects import unaltered_only
from specstudy.records import Claim, Correlation, EntropyBound
from specstudy.setting import Setting


@dataclass(frozen=True)
class AnalysisResult:
    """What the analysis found; frames hold NaN where a value is not defined, and say why in `null_reason`.

    `correlations` and `claims` are the rows of the tables of the same names. `prompts`: one row a prompt.
    `by_category`: mean of each measure by category and over all. `reliability`: split halves.
    `sinks`: where attention gathers, and context health in its light.
    `by_round_index`, `by_draft_entropy`: acceptance. `round_times`: where the time goes. `comparison`: the settings of
    the run side by side. `entropy_bounds`: rows of the table of this name. `routing`: None unless the verifier's
    experts were watched. `interventions`: what versions of prompts tell; everything else speaks of unaltered prompts.
    """

    settings: AnalysisSettings
    declarations: list[Declaration]
    correlations: list[Correlation]
    claims: list[Claim]
    mechanism: Mechanism
    prompts: pd.DataFrame
    suffixes: dict[Setting, str]
    primary: Setting | None
    by_category: pd.DataFrame
    reliability: pd.DataFrame
    by_round_index: pd.DataFrame
    by_draft_entropy: pd.DataFrame
    round_times: pd.DataFrame
    sinks: SinkAnalysis
    comparison: SettingComparison
    entropy_bounds: list[EntropyBound]
    interventions: Interventions
    routing: RoutingAnalysis | None

    @property
    def gammas(self) -> list[Setting]:
        """The primary setting and those that differ from it in gamma alone, in order."""
        return of_other_gammas(self.suffixes, self.primary) if self.primary else []

    @property
    def samplings(self) -> list[Setting]:
        """The primary setting and those that differ from it in temperature and top_p alone, in order."""
        if self.primary is None:
            return []
        temperature, top_p = self.primary.temperature, self.primary.top_p
        return sorted(
            setting
            for setting in self.suffixes
            if replace(setting, temperature=temperature, top_p=top_p) == self.primary
        )

    @property
    def primary_suffix(self) -> str:
        """What the primary setting's measures carry after their names; empty with one setting."""
        return self.suffixes[self.primary] if self.primary else ""

    def find(self, level: str, subset: str, x: str, y: str, method: str = "spearman") -> Correlation | None:
        """The correlation with these keys, or None."""
        wanted = (level, subset, x, y, method)
        return next((r for r in self.correlations if (r.level, r.subset, r.x, r.y, r.method) == wanted), None)

    def chain_correlation(self, declared: Declaration, subset: str) -> Correlation | None:
        """The correlation of a declared link of the chain on a subset, at the primary setting; None if not measured."""
        x, y, method = (declared.test[key] for key in ("x", "y", "method"))
        found = (self.find("prompt", subset, x, name, method) for name in (y, y + self.primary_suffix))
        return next((record for record in found if record), None)


def analyze(tables: Tables, settings: AnalysisSettings) -> AnalysisResult:
    """Everything the study reports, from its tables (any may be missing)."""
    with_versions, tables = tables, unaltered_only(tables)
    prompts = prompt_frame(tables)
    suffixes = setting_suffixes(settings_measured(tables))
    primary = primary_setting(list(suffixes), settings.primary)
    interventions = analyze_interventions(with_versions, primary, settings)
    # Correlations are asked of the primary setting and its other gammas: with every setting that a run compares, the
    # adjustment for their number would hide what each of them shows.
    related = {setting: suffixes[setting] for setting in of_other_gammas(suffixes, primary)} if primary else {}
    decoded = decoded_tokens(tables)
    tested = {setting: tested_tokens(tables, setting) for setting in related}
    correlations = all_correlations(prompts, decoded, tested, related, settings)
    declared = declarations()
    suffix, drafted = (suffixes[primary], tested[primary]) if primary else ("", None)
    explained = mechanism(prompts, drafted, suffix, correlations, settings)
    evidence = Evidence(
        with_claim_measures(prompts, tables, list(suffixes.values())),
        with_bound(decoded),
        decoded[:0] if drafted is None else drafted,
        suffixes,
        primary,
        explained,
        settings,
        interventions.versions,
    )
    return AnalysisResult(
        settings=settings,
        declarations=declared,
        correlations=correlations,
        claims=answer_claims(declared, evidence),
        mechanism=explained,
        prompts=prompts,
        suffixes=suffixes,
        primary=primary,
        by_category=means_by_category(prompts, _averaged_measures(suffixes.values()), settings),
        reliability=reliabilities(tables, decoded, tested, related, settings),
        by_round_index=acceptance.by_round_index(tested, related, settings),
        by_draft_entropy=acceptance.by_draft_entropy(decoded, drafted, settings),
        round_times=acceptance.round_times(tables, suffixes, settings),
        sinks=analyze_sinks(tables, prompts, settings),
        comparison=compare_settings(tables, suffixes, list(related), settings),
        entropy_bounds=entropy_bounds(decoded, settings),
        interventions=interventions,
        routing=analyze_routing(tables, prompts, related, primary, settings),
    )


def _averaged_measures(suffixes: Iterable[str]) -> list[str]:
    by_setting = [name + suffix for suffix in suffixes for name in measures_in("settings")]
    return [*CONTEXT_MEASURES, ENTROPY_MEASURE, *by_setting]
