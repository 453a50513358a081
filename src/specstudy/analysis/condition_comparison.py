"""The conditions of a run side by side: each measure over prompts, and paired differences between conditions.

Theory is only asked about drafts of gamma tokens: where a run has no theory of its own, because a stop rule or prompt
lookup makes drafts shorter, none is made up here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from specstudy import formulas
from specstudy.analysis.bootstrap import AnalysisSettings, Estimate, Floats
from specstudy.analysis.join import Tables, frame_of, group_codes, numbers, of_condition, series_theory
from specstudy.analysis.means import average, estimate_frame, median
from specstudy.analysis.measures import CONDITION_KEYS, THEORIES, measures_in
from specstudy.condition import Condition
from specstudy.records import ConditionDifference, ConditionMeasure

# Two conditions are compared if all that they differ in lies in one of these.
_COMPARED_KEYS = ({"gamma", "stop", "stop_threshold"}, {"proposer"}, {"temperature", "top_p"})


@dataclass(frozen=True)
class ConditionComparison:
    """`measures`, `differences`: rows of `condition_measures` and `condition_differences`, by condition (and reference)
    and measure. `theory_errors`: absolute error of each theory, |theory - speedup|, mean over gammas and median over
    prompts (measure, n, value, low, high, null_reason)."""

    measures: dict[tuple[Condition, str], ConditionMeasure]
    differences: dict[tuple[Condition, Condition, str], ConditionDifference]
    theory_errors: pd.DataFrame


def compare_conditions(
    tables: Tables, suffixes: Mapping[Condition, str], gammas: list[Condition], settings: AnalysisSettings
) -> ConditionComparison:
    """Everything about the conditions in `suffixes`; `gammas` are those on which the theories are judged together."""
    values = {condition: condition_values(tables, condition) for condition in suffixes}
    return ConditionComparison(
        {
            (condition, row.measure): row
            for condition in suffixes
            for row in _measures(condition, values[condition], tables, settings)
        },
        {
            (condition, reference, row.measure): row
            for condition, reference in comparable_pairs(list(suffixes))
            for row in _differences(condition, reference, values, tables, settings)
        },
        _theory_errors([values[condition] for condition in gammas], tables, settings),
    )


def comparable_pairs(conditions: list[Condition]) -> list[tuple[Condition, Condition]]:
    """Every pair (condition, reference) that differs in gamma and stop rule only, in the proposer only, or in sampling
    only. What does not stop early, and what the draft model drafts, is the reference."""
    ordered = sorted(conditions, key=lambda s: (s.stop != "none", s.proposer != "model", s))
    pairs = []
    for reference, condition in combinations(ordered, 2):
        differing = {key for key in CONDITION_KEYS if getattr(condition, key) != getattr(reference, key)}
        if any(differing <= keys for keys in _COMPARED_KEYS):
            pairs.append((condition, reference))
    return pairs


def condition_values(tables: Tables, condition: Condition) -> pd.DataFrame:
    """One row a prompt: every measure at one condition, repetitions averaged first, NaN where it is not defined."""
    runs = of_condition(frame_of(tables, "spec_runs"), condition)
    stored = dict.fromkeys(measures_in("gammas", "spec_runs") + measures_in("differences", "spec_runs"))
    columns: dict[str, Floats] = {name: numbers(runs[name]) for name in stored}
    columns["theoretical_speedup_acceptance_rate"] = series_theory(runs, condition.gamma)
    applies = np.isfinite(columns["theoretical_speedup_flops"])
    columns["tokens_per_round_expected"] = _elementwise(
        lambda alpha: formulas.expected_tokens_per_round(alpha, condition.gamma),
        np.where(applies, columns["alpha"], np.nan),
    )
    proposed, tested, tokens = (numbers(runs[name]) for name in ("n_proposed", "n_tested", "n_tokens"))
    columns["proposed_per_token"] = proposed / tokens
    columns["untested_share"] = (proposed - tested) / np.where(proposed > 0, proposed, np.nan)
    columns |= {f"{name}_error": np.abs(columns[name] - columns["speedup"]) for name in THEORIES}
    # What a round costs in steps of the verifier, taken back out of what theory made of it.
    full_cost = columns["tokens_per_round_expected"] / columns["theoretical_speedup_full"]
    costs = {"flops": columns["cost_ratio_flops"], "time": columns["cost_ratio_time"]}
    costs["full"] = (full_cost - 1.0) / condition.gamma
    columns |= {
        f"breakeven_alpha_{name}": _elementwise(
            lambda cost: formulas.breakeven_alpha(condition.gamma, max(cost, 0.0)), np.where(applies, cost, np.nan)
        )
        for name, cost in costs.items()
    }
    index = pd.Index(runs["prompt_id"].astype(object), name="prompt_id")
    return pd.DataFrame(columns, index=index).groupby(level=0).mean()


def _elementwise(function: Callable[[float], float | None], values: Floats) -> Floats:
    """The function of each value; NaN where it has none or the value is NaN."""
    results = [None if np.isnan(value) else function(float(value)) for value in values]
    return np.array([np.nan if result is None else result for result in results], dtype=np.float64)


def _measures(
    condition: Condition, values: pd.DataFrame, tables: Tables, settings: AnalysisSettings
) -> Iterator[ConditionMeasure]:
    groups = group_codes(tables, values.index)
    for name in map(str, values):
        estimate = average(name.removesuffix("_error"), values[name].to_numpy(), settings, groups=groups)
        n_lost = int(values["cost_ratio_flops"].notna().sum()) - estimate.n
        if name.startswith("breakeven_alpha") and estimate.n and n_lost:
            # An average over the prompts where drafting can pay would hide those where it cannot.
            estimate = Estimate(estimate.n, null_reason=f"even alpha = 1 does not pay on {n_lost} prompts")
        yield ConditionMeasure(**asdict(condition), measure=name, **_told(estimate))


def _differences(
    condition: Condition,
    reference: Condition,
    values: Mapping[Condition, pd.DataFrame],
    tables: Tables,
    settings: AnalysisSettings,
) -> Iterator[ConditionDifference]:
    ours, theirs = values[condition].align(values[reference], join="inner", axis=0)
    groups = group_codes(tables, ours.index)
    subtracted: dict[str, Any] = {f"reference_{key}": value for key, value in asdict(reference).items()}
    for name in measures_in("differences"):
        estimate = average(name, (ours[name] - theirs[name]).to_numpy(), settings, groups=groups)
        yield ConditionDifference(**asdict(condition), **subtracted, measure=name, **_told(estimate))


def _told(estimate: Estimate) -> dict[str, Any]:
    reason = estimate.null_reason if estimate.n else "not defined at this condition"
    return {"n": estimate.n, **estimate.columns(), "null_reason": reason}


def _theory_errors(values: list[pd.DataFrame], tables: Tables, settings: AnalysisSettings) -> pd.DataFrame:
    together = pd.concat(values) if values else pd.DataFrame(columns=[f"{name}_error" for name in THEORIES])
    by_prompt = together.astype(np.float64).groupby(level=0).mean()
    groups = group_codes(tables, by_prompt.index)
    errors = {name: by_prompt[f"{name}_error"].to_numpy() for name in THEORIES}
    rows = (({"measure": name}, median(error, settings, groups=groups)) for name, error in errors.items())
    return estimate_frame(rows, ("measure",))
