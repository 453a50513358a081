"""The kinds of tests that claims name. A kind is a function of the claim and the evidence; adding one is an entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings, Codes, Estimate, Floats
from specstudy.analysis.correlation import correlate
from specstudy.analysis.correlations import prompt_subsets
from specstudy.analysis.declarations import Declaration
from specstudy.analysis.fit import slope
from specstudy.analysis.means import difference, mean, median, nested_mean, numbered, ratio
from specstudy.analysis.measures import At, Key, label, phrase
from specstudy.analysis.mechanism import Mechanism
from specstudy.analysis.verdicts import Finding, not_run
from specstudy.analysis.version_effects import differences, groups_of_originals
from specstudy.analysis.within import median_within_prompt
from specstudy.analysis.writing.study import WritingAnalysis
from specstudy.condition import Condition


@dataclass(frozen=True)
class Evidence:
    """What the tests may look at. `suffixes`: what each condition's measures carry after their names.

    `prompts`: a row a prompt. `decoded`, `tested`: a row a token, `tested` at the primary condition. `versions`: a
    row a version of a prompt (`Interventions.versions`). `busy`: why speeds decide nothing (`MachineState.busy`).
    """

    prompts: pd.DataFrame
    decoded: pd.DataFrame
    tested: pd.DataFrame
    suffixes: Mapping[Condition, str]
    primary: Condition | None
    mechanism: Mechanism
    settings: AnalysisSettings
    versions: pd.DataFrame
    writing: WritingAnalysis
    busy: str = ""

    @property
    def groups(self) -> Codes:
        """The group of each prompt: what is drawn together."""
        return numbered(self.prompts["group"])[0]

    def measure(self, name: str) -> Key:
        """The column of a measure: as it is, or of the primary condition."""
        if name in self.prompts or self.primary is None:
            return name
        return At(name, self.primary, self.suffixes[self.primary])

    def values(self, name: str) -> Floats:
        """A measure of each prompt; all NaN where it was not measured."""
        column = self.measure(name)
        missing = np.full(len(self.prompts), np.nan)
        return self.prompts[column].to_numpy(dtype=np.float64) if column in self.prompts else missing


def _correlation(claim: Declaration, evidence: Evidence) -> Finding:
    over_prompts = claim.test["level"] == "prompt"
    return (_prompt_correlation if over_prompts else _token_correlation)(claim, evidence)


def _prompt_correlation(claim: Declaration, evidence: Evidence) -> Finding:
    test = claim.test
    rows, covariates = prompt_subsets(evidence.prompts)[test["subset"]]
    x, y = (replace(evidence, prompts=rows).values(test[axis]) for axis in "xy")
    if np.isnan(x).all() or np.isnan(y).all():
        return not_run(f"{test['x']} and {test['y']} were not both measured")
    estimate = correlate(x, y, numbered(rows["group"])[0], test["method"], evidence.settings, covariates)
    held = "" if covariates is None else ", adjusted for category, length and surprisal of the prompt,"
    words = f"{test['method'].title()} correlation of {phrase(test['x'])} with {phrase(evidence.measure(test['y']))}"
    return Finding(_named(estimate, test), estimate.n, words + held, "correlation")


def _token_correlation(claim: Declaration, evidence: Evidence) -> Finding:
    test = claim.test
    tokens = evidence.tested if "accepted" in (test["x"], test["y"]) else evidence.decoded
    if tokens.empty:
        return not_run(f"{test['x']} and {test['y']} were not both measured")
    x, y = (tokens[test[axis]].to_numpy() for axis in "xy")
    prompts, groups = (numbered(tokens[key])[0] for key in ("prompt_id", "group"))
    words = f"{test['method'].title()} correlation of {phrase(test['x'])} with {phrase(test['y'])}"
    if test["subset"] == "within_prompt":
        estimate = median_within_prompt(x, y, prompts, test["method"], evidence.settings, groups)
        return Finding(_named(estimate, test), estimate.n, f"Median over prompts of the {words} within a prompt")
    estimate = correlate(x, y, groups, test["method"], evidence.settings)
    return Finding(_named(estimate, test), len(np.unique(prompts)), words)


def _named(estimate: Estimate, test: Mapping[str, Any]) -> Estimate:
    """The estimate with its measures called by their names in the reason that it has none."""
    axis, _, rest = (estimate.null_reason or "").partition(" ")
    return replace(estimate, null_reason=f"{phrase(test[axis])} {rest}") if axis in ("x", "y") else estimate


def _average(claim: Declaration, evidence: Evidence) -> Finding:
    measure, category = claim.test["measure"], claim.test.get("category")
    values, groups = evidence.values(measure), evidence.groups
    if category is not None:
        of_category = (evidence.prompts["category"] == category).to_numpy(dtype=bool)
        values, groups = values[of_category], groups[of_category]
        if not len(values):
            return not_run(f"no prompts of category {category}")
    if np.isnan(values).all():
        return not_run(_WHY_ABSENT.get(measure, f"{phrase(measure)} was not measured"))
    average = {"mean": mean, "median": median}[claim.test["kind"]]
    estimate = average(values, evidence.settings, claim.reference, groups)
    of = f" of {category} prompts" if category else ""
    return Finding(estimate, estimate.n, f"{claim.test['kind'].title()} {phrase(measure)}{of}")


_WHY_ABSENT = {
    "boundary_gain_z_window": "every position at the boundary lies inside the observation window, where this measure "
    "is not defined",
    **dict.fromkeys(
        ("sink_keys_kl_bits", "windowed_draft_accept"), "no keys were dropped; experiment=kv_retention drops them"
    ),
}


def _difference(claim: Declaration, evidence: Evidence) -> Finding:
    test, values = claim.test, evidence.values(claim.test["measure"])
    present = set(evidence.prompts["category"])
    missing = [name for name in (*test["over"], *test["under"]) if name not in present]
    if missing:
        return not_run(f"no prompts of category {', '.join(missing)}")
    sides = [evidence.prompts["category"].isin(test[side]).to_numpy(dtype=bool) for side in ("over", "under")]
    over, under = (values[side] for side in sides)
    groups = evidence.groups[sides[0]], evidence.groups[sides[1]]
    estimate = difference(over, under, evidence.settings, groups=groups)
    words = f"Mean {phrase(test['measure'])} of {', '.join(test['over'])} minus that of {', '.join(test['under'])}"
    return Finding(estimate, estimate.n, words)


def _slope(claim: Declaration, evidence: Evidence) -> Finding:
    test = claim.test
    estimate = slope(evidence.values(test["x"]), evidence.values(test["y"]), evidence.settings, evidence.groups)
    words = f"Slope of the {phrase(test['y'])} on {phrase(test['x'])}"
    return Finding(_named(estimate, test), estimate.n, words)


def _ratio(claim: Declaration, evidence: Evidence) -> Finding:
    measure, to = claim.test["measure"], claim.test["to"]
    totals = np.column_stack([evidence.values(measure), evidence.values(to)])
    kept = np.isfinite(totals).all(axis=1)
    if not kept.any():
        return not_run(f"{phrase(measure)} and {phrase(to)} were not both measured")
    measured, expected = (np.bincount(evidence.groups[kept], column[kept]).astype(np.float64) for column in totals.T)
    estimate = ratio(measured, expected, evidence.settings)
    return Finding(estimate, int(kept.sum()), f"Ratio over prompts of {phrase(measure)} to {phrase(to)}")


def _ordering(claim: Declaration, evidence: Evidence) -> Finding:
    test, categories = claim.test, evidence.prompts["category"]
    missing = [name for name in test["categories"] if name not in set(categories)]
    if missing:
        return not_run(f"no prompts of category {', '.join(missing)}")
    ranks = categories.map({name: place for place, name in enumerate(test["categories"])}).to_numpy(dtype=np.float64)
    estimate = correlate(ranks, evidence.values(test["measure"]), evidence.groups, "spearman", evidence.settings)
    words = f"Spearman correlation of {phrase(test['measure'])} with the claimed order of categories"
    return Finding(estimate, estimate.n, words, "correlation")


def _token_mean(claim: Declaration, evidence: Evidence) -> Finding:
    measure, tokens = claim.test["measure"], evidence.decoded
    known = tokens.dropna(subset=[measure])
    if known.empty:
        return not_run(f"{phrase(measure)} was not measured")
    estimate = nested_mean(known[measure].to_numpy(), *numbered(known["group"]), evidence.settings)
    return Finding(estimate, known["prompt_id"].nunique(), f"Mean {phrase(measure)}")


def _paired(claim: Declaration, evidence: Evidence) -> Finding:
    key, measure = claim.test["key"], claim.test["measure"]
    differences, extremes = _extremes(key, measure, evidence, claim.test.get("values"))
    if extremes is None:
        asked = " and ".join(map(str, claim.test.get("values", ()))) or "several values"
        return not_run(f"it needs {asked} of {key} on the same prompts; experiment=sampling_sweep runs them")
    estimate = mean(differences, evidence.settings, groups=evidence.groups)
    words = f"Mean {phrase(measure)} at {key} {extremes[1]:g} minus that at {extremes[0]:g}, paired by prompt,"
    return Finding(estimate, estimate.n, words)


def _extremes(
    key: str, measure: str, evidence: Evidence, wanted: Sequence[float] | None
) -> tuple[Floats, tuple[float, float] | None]:
    """Per prompt: the measure at the highest value of a key minus that at its lowest, averaged over the other keys;
    at the highest and lowest of the `wanted` values, if these are given."""
    values = sorted({getattr(condition, key) for condition in evidence.suffixes})
    if wanted is not None:
        values = sorted(wanted) if set(wanted) <= set(values) else []
    if len(values) < 2:
        return np.zeros(0), None
    low, high = values[0], values[-1]
    columns = [
        evidence.prompts[At(measure, condition)] - evidence.prompts[At(measure, lowest)]
        for condition in evidence.suffixes
        if getattr(condition, key) == high and (lowest := replace(condition, **{key: low})) in evidence.suffixes
    ]
    if not columns:
        return np.zeros(0), None
    return pd.concat(columns, axis=1).mean(axis=1).to_numpy(dtype=np.float64), (low, high)


def _version(claim: Declaration, evidence: Evidence) -> Finding:
    test, versions = claim.test, evidence.versions
    rows = versions[versions["kind"].isin(test["versions"])]
    rows = rows[(rows["dose"] == rows.groupby("kind")["dose"].transform("max")).to_numpy(dtype=bool)]
    if rows.empty:
        return not_run(f"no such versions of prompts were run; experiment={test['experiment']} runs them")
    values, control_of = versions[test["measure"]], versions["control_id"]
    own = differences(rows, values, rows.index, rows["control_id"], columns="kind").mean(axis=1, skipna=False)
    of_control = differences(rows, values, rows["control_id"], rows["control_id"].map(control_of), columns="kind")
    groups = groups_of_originals(rows, own.index)
    estimate = mean(own.to_numpy(dtype=np.float64), evidence.settings, claim.reference, groups)
    words = f"Mean change of {phrase(test['measure'])} by {', '.join(test['versions']).replace('_', ' ')}"
    if of_control.notna().to_numpy().any():
        moved = float(of_control.mean(axis=1).mean())
        words += f" beyond what the control does ({moved:.2f})"
    return Finding(estimate, estimate.n, words)


def _version_ends(claim: Declaration, evidence: Evidence) -> Finding:
    """The mean of both ends minus the control in the middle."""
    return _between_doses(claim, evidence, 0.5, 0.5, "both ends' mean minus the control")


def _version_range(claim: Declaration, evidence: Evidence) -> Finding:
    return _between_doses(claim, evidence, -1.0, 1.0, "the highest dose minus the lowest")


def _between_doses(claim: Declaration, evidence: Evidence, of_least: float, of_most: float, words: str) -> Finding:
    """A sum of the differences from the control at the lowest dose, below 0, and at the highest, above it."""
    test, versions = claim.test, evidence.versions
    rows = versions[(versions["kind"] == test["versions"]).to_numpy(dtype=bool)]
    ends = min(rows["dose"], default=0), max(rows["dose"], default=0)
    if not ends[0] < 0 < ends[1]:
        return not_run(f"no such versions of prompts were run; experiment={test['experiment']} runs them")
    changed = differences(rows, versions[test["measure"]], rows.index, rows["control_id"])
    least, most = (changed[dose].to_numpy(dtype=np.float64) for dose in ends)
    groups = groups_of_originals(rows, changed.index)
    estimate = mean(of_least * least + of_most * most, evidence.settings, claim.reference, groups)
    told = f"Mean {phrase(test['measure'])} by {test['versions'].replace('_', ' ')}, {words},"
    return Finding(estimate, estimate.n, told)


def _logistic(claim: Declaration, evidence: Evidence) -> Finding:
    term = claim.test["term"]
    estimate = evidence.mechanism.terms[term]
    words = f"Change of the log-odds of acceptance per bit of {phrase(term)}, adjusted for place and category,"
    return Finding(estimate, evidence.tested["prompt_id"].nunique(), words)


def _predictor(claim: Declaration, evidence: Evidence) -> Finding:
    name, metric, minus = claim.test["predictor"], claim.test["metric"], claim.test.get("minus", "")
    words = f"{label(metric)} of {label(name)}" + (f" minus that of {label(minus)}" if minus else "")
    estimate = evidence.mechanism.scores[name, metric, minus]
    chance = evidence.mechanism.scores.get((name, f"{metric}_by_chance", minus))
    if chance and chance.value is not None:
        words += f" (of a perfectly calibrated model {chance.value:.3f})"
    return Finding(estimate, evidence.tested["prompt_id"].nunique(), f"{words[0].upper()}{words[1:]}")


def _attention_link(claim: Declaration, evidence: Evidence) -> Finding:
    measure, layers, outcome = (claim.test[key] for key in ("measure", "layers", "outcome"))
    estimate = evidence.writing.links.get((measure, layers, outcome))
    if estimate is None:
        return not_run("attention while writing was not recorded; `make study` records it")
    where = "" if layers == "all" else f" in the {layers.replace('_', ' ')} of the layers"
    words = f"Mean partial rank correlation within answers of {phrase(measure)}{where} with {phrase(outcome)}"
    return Finding(estimate, estimate.n, words)


def _attention_head(claim: Declaration, evidence: Evidence) -> Finding:
    measure, chosen_by = claim.test["measure"], claim.test["chosen_by"]
    estimate = evidence.writing.chosen_heads.get((measure, chosen_by))
    if estimate is None:
        return not_run("attention heads were not recorded; `make study decode.attention_heads=true` records them")
    words = (
        f"Mean partial rank correlation within answers of {phrase(measure)} of the chosen head with verifier entropy"
    )
    return Finding(estimate, estimate.n, words)


def _attention_gain(claim: Declaration, evidence: Evidence) -> Finding:
    estimate = evidence.writing.gains.get((claim.test["outcome"], claim.test["held"]))
    if estimate is None:
        return not_run("attention while writing was not recorded; `make study` records it")
    words = f"What attention adds to the R\N{SUPERSCRIPT TWO} of {phrase(claim.test['outcome'])} on unseen prompts"
    return Finding(estimate, estimate.n, words)


TESTS: dict[str, Callable[[Declaration, Evidence], Finding]] = {
    "correlation": _correlation,
    "mean": _average,
    "median": _average,
    "difference": _difference,
    "slope": _slope,
    "ratio": _ratio,
    "ordering": _ordering,
    "token_mean": _token_mean,
    "paired": _paired,
    "version": _version,
    "version_ends": _version_ends,
    "version_range": _version_range,
    "logistic": _logistic,
    "predictor": _predictor,
    "attention_link": _attention_link,
    "attention_head": _attention_head,
    "attention_gain": _attention_gain,
}
