"""The whole analysis: tables in, answers out. Pure, and the same for the same tables and settings."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from specstudy.analysis import acceptance
from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.claim_measures import with_bound, with_claim_measures
from specstudy.analysis.claim_tests import Evidence
from specstudy.analysis.claims import answer_claims
from specstudy.analysis.condition_comparison import ConditionComparison, compare_conditions
from specstudy.analysis.correlations import Pair, all_correlations
from specstudy.analysis.declarations import Declaration, declarations
from specstudy.analysis.entropy_bound import entropy_bounds
from specstudy.analysis.interventions import Interventions, analyze_interventions
from specstudy.analysis.join import (
    Tables,
    conditions_measured,
    decoded_tokens,
    frame_of,
    prompt_frame,
    repeats_itself,
    tested_tokens,
    without_repetitive,
)
from specstudy.analysis.machine import MachineState, machine_state
from specstudy.analysis.means import means_by_category
from specstudy.analysis.measures import (
    At,
    Key,
    condition_name,
    condition_suffixes,
    of_other_gammas,
    primary_condition,
)
from specstudy.analysis.mechanism import Mechanism, mechanism
from specstudy.analysis.reliability import ceiling, reliabilities
from specstudy.analysis.retention import retention_costs
from specstudy.analysis.routing.study import RoutingAnalysis, analyze_routing
from specstudy.analysis.sinks.study import SinkAnalysis, analyze_sinks
from specstudy.analysis.version_effects import unaltered_only
from specstudy.analysis.writing.study import WritingAnalysis, analyze_writing
from specstudy.condition import Condition
from specstudy.records import Claim, Correlation, EntropyBound, RetentionCost


@dataclass(frozen=True)
class AnalysisResult:
    """What the analysis found; frames hold NaN where a value is not defined, and say why in `null_reason`.

    `by_pair`: the rows of `correlations` by what they are of. `claims`: those of this table. `prompts`: a row a prompt,
    its columns keyed by measure, or by measure and condition (`At`). `n_repetitive`: the verifier's answers that repeat
    themselves.
    `by_category`: average of each measure by category and over all. `reliability`: of what is sampled.
    `sinks`: where attention gathers, and context health in its light.
    `by_round_index`, `by_draft_entropy`: acceptance. `round_times`: where the time goes. `comparison`: the run's
    conditions side by side. `machine`: how quiet it was while speeds were measured. `entropy_bounds`: rows of the
    table of this name. `retention`: rows of `retention_costs`, none unless keys were dropped. `routing`: None unless
    the verifier's experts were watched. `interventions`: what versions of prompts tell; everything else speaks of
    unaltered prompts. `writing`: attention while answers are written.
    """

    settings: AnalysisSettings
    declarations: list[Declaration]
    by_pair: dict[Pair, Correlation]
    claims: list[Claim]
    mechanism: Mechanism
    prompts: pd.DataFrame
    n_repetitive: int
    suffixes: dict[Condition, str]
    primary: Condition | None
    by_category: pd.DataFrame
    reliability: pd.DataFrame
    by_round_index: pd.DataFrame
    by_draft_entropy: pd.DataFrame
    round_times: pd.DataFrame
    sinks: SinkAnalysis
    comparison: ConditionComparison
    machine: MachineState
    entropy_bounds: list[EntropyBound]
    interventions: Interventions
    retention: list[RetentionCost]
    writing: WritingAnalysis
    routing: RoutingAnalysis | None

    @property
    def gammas(self) -> list[Condition]:
        """The primary condition and those that differ from it in gamma alone, in order."""
        return of_other_gammas(self.suffixes, self.primary) if self.primary else []

    @property
    def samplings(self) -> list[Condition]:
        """The primary condition and those that differ from it in temperature and top_p alone, in order."""
        if self.primary is None:
            return []
        temperature, top_p = self.primary.temperature, self.primary.top_p
        return sorted(
            condition
            for condition in self.suffixes
            if replace(condition, temperature=temperature, top_p=top_p) == self.primary
        )

    def at(self, measure: str, condition: Condition | None = None) -> Key:
        """The key of a measure at a condition, the primary one if none is given; its name if nothing was drafted."""
        of = condition or self.primary
        return At(measure, of, self.suffixes[of]) if of else measure

    def key(self, measure: str) -> Key:
        """What a measure of prompts is found by: its name, or the measure at the primary condition."""
        return measure if measure in self.prompts else self.at(measure)

    @property
    def correlations(self) -> list[Correlation]:
        """The rows of the table of this name."""
        return [*self.by_pair.values()]

    def find(self, level: str, subset: str, x: str, y: Key, method: str = "spearman") -> Correlation | None:
        """The correlation with these keys, or None."""
        return self.by_pair.get(Pair(level, subset, x, y, method))

    def chain_correlation(self, declared: Declaration, subset: str) -> Correlation | None:
        """The correlation of a declared link on a subset, at the primary condition; None if not measured."""
        x, y, method = (declared.test[key] for key in ("x", "y", "method"))
        return self.find("prompt", subset, x, self.key(y), method)

    def ceiling(self, declared: Declaration) -> float | None:
        """The strongest correlation that noise leaves room for in a declared link of the chain; None if not known."""
        return ceiling(self.reliability, declared.test["x"], self.key(declared.test["y"]))


def analyze(tables: Tables, settings: AnalysisSettings) -> AnalysisResult:
    """Everything the study reports, from its tables (any may be missing)."""
    with_versions, tables = tables, unaltered_only(tables)
    prompts = prompt_frame(tables)
    suffixes = condition_suffixes(conditions_measured(tables))
    primary = primary_condition(list(suffixes), settings.primary)
    interventions = analyze_interventions(with_versions, primary, settings)
    # Correlations are asked of the primary condition and its other gammas: over every condition of a run, adjusting
    # for multiplicity would hide what each of them shows.
    related = {condition: suffixes[condition] for condition in of_other_gammas(suffixes, primary)} if primary else {}
    decoded = decoded_tokens(tables)
    tested = {condition: tested_tokens(tables, condition) for condition in related}
    distinct = prompt_frame(without_repetitive(tables))
    correlations = all_correlations(prompts, distinct, decoded, tested, related, settings)
    declared = declarations()
    drafted = tested[primary] if primary else None
    explained = mechanism(decoded, drafted, correlations, settings)
    sinks = analyze_sinks(tables, prompts, settings)
    writing = analyze_writing(tables, primary, settings)
    machine = machine_state(tables, {condition: condition_name(condition, suffixes) for condition in suffixes})
    evidence = Evidence(
        with_claim_measures(prompts, tables, suffixes, sinks),
        with_bound(decoded),
        decoded[:0] if drafted is None else drafted,
        suffixes,
        primary,
        explained,
        settings,
        interventions.versions,
        writing,
        machine.busy[primary] if primary else "",
    )
    return AnalysisResult(
        settings=settings,
        declarations=declared,
        by_pair=correlations,
        claims=answer_claims(declared, evidence),
        mechanism=explained,
        prompts=prompts,
        n_repetitive=int(repeats_itself(frame_of(tables, "decode_runs")).sum()),
        suffixes=suffixes,
        primary=primary,
        by_category=means_by_category(
            prompts, prompts.columns.drop(["category", "group", "first_position_z_score"]), settings
        ),
        reliability=reliabilities(tables, related, settings),
        by_round_index=acceptance.by_round_index(tested, related, settings),
        by_draft_entropy=acceptance.by_draft_entropy(decoded, drafted, settings),
        round_times=acceptance.round_times(tables, suffixes, settings),
        sinks=sinks,
        machine=machine,
        comparison=compare_conditions(tables, suffixes, list(related), settings),
        entropy_bounds=entropy_bounds(decoded, settings),
        interventions=interventions,
        retention=retention_costs(tables, settings),
        writing=writing,
        routing=analyze_routing(tables, prompts, related, primary, settings),
    )
