"""Two runs side by side: what differs in how they were made, and prompt by prompt in what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings, Estimate
from specstudy.analysis.join import Tables, conditions_measured, frame_of, of_condition, prompt_frame
from specstudy.analysis.machine import DISAGREEMENT, machine_state
from specstudy.analysis.means import average, estimate_frame, numbered
from specstudy.analysis.measures import CONDITION_KEYS, At, condition_name, condition_suffixes, is_timed, measures_in
from specstudy.condition import Condition
from specstudy.errors import UserError
from specstudy.tables.differences import differences, flatten

COMPARED_TABLES = (
    "prompts",
    "prompt_versions",
    "prefill_prompts",
    "prefill_tokens",
    "decode_runs",
    "decode_tokens",
    "spec_runs",
    "spec_tokens",
    "claims",
)
# What the manifest says about how numbers and timings came about; the rest of it is in the configuration.
_PROVENANCE = (
    *(f"models.{role}.{key}" for role in ("verifier", "draft") for key in ("name", "note", "sha256")),
    "execution.",
    "prompts.",
    "stages.decode.load_average",
    "stages.speculate.load_average",
    "code.",
    "environment.python",
    "environment.platform",
    "environment.packages.",
)
# What may change how long a step of the verifier takes, if it is not the machine's load.
_DECIDES_PACE = ("models.verifier.", "execution.", "environment.")
OTHER_MACHINE = "the machine was busy, or not the same"
_CLAIM_COLUMNS = ("verdict", "estimate", "ci_low", "ci_high")


@dataclass(frozen=True)
class Side:
    """One of the two runs: what it is called, its nested configuration and manifest, its tables."""

    name: str
    config: Mapping[str, object]
    manifest: Mapping[str, Any]
    tables: Tables


@dataclass(frozen=True)
class Comparison:
    """What two runs differ in. Every difference is b minus a.

    `config`, `provenance`: (a, b) by dotted key of the configuration and of the manifest. `only_in_a`, `only_in_b`:
    ids of prompts that the other run lacks. `measures`: condition (empty for what no condition changes), measure, a, b
    (averages over the n prompts that have both), n, value (average difference), low, high, null_reason. `unpaired`: by
    side, conditions without a match in the other run. `claims`: claim_id, statement, and verdict, estimate, ci_low,
    ci_high of each side (`verdict_a`), for claims whose verdict differs; None where a run has not answered its claims.
    `machine`: why differences in what a clock has a part in are no effects of what differs between the runs, in words;
    these then have no interval. `tokens`: see `compare_tokens`.
    """

    config: dict[str, tuple[object, object]]
    provenance: dict[str, tuple[object, object]]
    n_common: int
    only_in_a: list[str]
    only_in_b: list[str]
    measures: pd.DataFrame
    machine: list[str]
    unpaired: dict[str, list[str]]
    claims: pd.DataFrame | None
    tokens: pd.DataFrame
    settings: AnalysisSettings


def compare(a: Side, b: Side, settings: AnalysisSettings) -> Comparison:
    """Everything that differs between two runs. Raises UserError if they have no prompt in common."""
    prompts_a, prompts_b = prompt_frame(a.tables), prompt_frame(b.tables)
    common = prompts_a.index.intersection(prompts_b.index)
    if common.empty:
        raise UserError(
            f"a and b have no prompt in common: {_ids_in_words(a, prompts_a)}, {_ids_in_words(b, prompts_b)}"
        )
    names_a, names_b = _condition_names(a.tables), _condition_names(b.tables)
    pairs = {_pair_name(names_a[x], names_b[y]): (x, y) for x, y in paired_conditions(list(names_a), list(names_b))}
    measures = estimate_frame(
        _all_differences(prompts_a, prompts_b, pairs, settings), ("condition", "measure", "a", "b")
    )
    provenance = differences(_provenance(a.manifest), _provenance(b.manifest))
    machine = [*_busy("a", a), *_busy("b", b), *_other_pace(prompts_a, prompts_b, pairs, provenance)]
    if machine:
        timed = measures["measure"].map(is_timed)
        measures.loc[timed, ["low", "high"]] = np.nan
        measures.loc[timed, "null_reason"] = OTHER_MACHINE
    answered = "claims" in a.tables and "claims" in b.tables
    return Comparison(
        config=differences(a.config, b.config),
        provenance=provenance,
        n_common=len(common),
        only_in_a=[str(i) for i in prompts_a.index.difference(prompts_b.index)],
        only_in_b=[str(i) for i in prompts_b.index.difference(prompts_a.index)],
        measures=measures,
        machine=machine,
        unpaired={
            "a": _others(names_a, {x for x, _ in pairs.values()}),
            "b": _others(names_b, {y for _, y in pairs.values()}),
        },
        claims=changed_claims(a.tables["claims"], b.tables["claims"]) if answered else None,
        tokens=compare_tokens(a.tables, b.tables, pairs),
        settings=settings,
    )


def paired_conditions(a: list[Condition], b: list[Condition]) -> list[tuple[Condition, Condition]]:
    """Settings to be compared: those that agree on every key that varies within one of the runs.

    So runs of several gammas are compared gamma by gamma, and two runs of one condition each are compared whatever
    they differ in.
    """
    varying = [key for key in CONDITION_KEYS if any(len({getattr(s, key) for s in side}) > 1 for side in (a, b))]
    return [(x, y) for x in a for y in b if all(getattr(x, key) == getattr(y, key) for key in varying)]


def changed_claims(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Claims whose verdict differs, in the order of a; one that a run does not know has None for its verdict there."""
    ids = list(dict.fromkeys([*a["claim_id"], *b["claim_id"]]))
    left, right = (claims.set_index("claim_id").reindex(ids) for claims in (a, b))
    joined = pd.DataFrame({"statement": left["statement"].fillna(right["statement"])}, index=left.index)
    for column in _CLAIM_COLUMNS:
        joined[f"{column}_a"], joined[f"{column}_b"] = left[column], right[column]
    for column in ("verdict_a", "verdict_b"):
        joined[column] = joined[column].astype(object).where(joined[column].notna(), None)
    return joined[joined["verdict_a"] != joined["verdict_b"]].reset_index()


def compare_tokens(a: Tables, b: Tables, pairs: Mapping[str, tuple[Condition, Condition]]) -> pd.DataFrame:
    """Whether the runs hold the same token ids: a row for each kind of sequence that both have.

    Columns: sequence (in words), n_prompts (with generations in both runs), n_equal (prompts all of whose ids are the
    same), and of the first place that differs, None where there is none: prompt_id, repetition, place, and id_a,
    token_a, id_b, token_b, None where that side has no token there.
    """
    columns = ["sequence", "n_prompts", "n_equal", "prompt_id", "repetition", "place"]
    columns += [f"{column}_{side}" for side in ("a", "b") for column in ("id", "token")]
    rows = [
        {**dict.fromkeys(columns), "sequence": words, **outcome}
        for words, places, left, right in _sequences(a, b, pairs)
        if (outcome := _first_difference(left, right, places))
    ]
    return pd.DataFrame(rows, columns=columns, dtype=object).astype({"n_prompts": "int64", "n_equal": "int64"})


def _ids_in_words(side: Side, prompts: pd.DataFrame) -> str:
    examples = f", the first {prompts.index[0]}" if len(prompts) else ""
    return f"{side.name} has {len(prompts)}{examples}"


def _provenance(manifest: Mapping[str, Any]) -> dict[str, object]:
    return {key: value for key, value in flatten(manifest).items() if key.startswith(_PROVENANCE)}


def _condition_names(tables: Tables) -> dict[Condition, str]:
    suffixes = condition_suffixes(conditions_measured(tables))
    return {condition: condition_name(condition, suffixes) for condition in suffixes}


def _busy(name: str, side: Side) -> list[str]:
    """Why speeds of a run tell nothing, by condition."""
    names = _condition_names(side.tables)
    busy = machine_state(side.tables, names).busy
    return [f"the machine of {name} was busy at {names[condition]}: {why}" for condition, why in busy.items() if why]


def _other_pace(
    a: pd.DataFrame,
    b: pd.DataFrame,
    pairs: Mapping[str, tuple[Condition, Condition]],
    provenance: Mapping[str, tuple[object, object]],
) -> list[str]:
    """A sentence if the same verifier, run in the same way, took another time for the same work."""
    if any(key.startswith(_DECIDES_PACE) for key in provenance):
        return []
    for x, y in pairs.values():
        both = pd.DataFrame({"a": a[At("verifier_step_s", x)], "b": b[At("verifier_step_s", y)]}).dropna()
        pace = float((both["b"] / both["a"]).median())
        if abs(pace - 1) > DISAGREEMENT:
            return [f"a step of the same verifier took {pace:.2f} times as long in b"]
    return []


def _others(names: Mapping[Condition, str], paired: set[Condition]) -> list[str]:
    return [name for condition, name in names.items() if condition not in paired]


def _pair_name(a: str, b: str) -> str:
    return a if a == b else f"{a} (a), {b} (b)"


def _all_differences(
    a: pd.DataFrame, b: pd.DataFrame, pairs: Mapping[str, tuple[Condition, Condition]], settings: AnalysisSettings
) -> Iterator[tuple[dict[str, object], Estimate]]:
    # One of the runs may not have been told of groups.
    groups = min((a["group"][a.index.isin(b.index)], b["group"][b.index.isin(a.index)]), key=pd.Series.nunique)
    of_conditions = measures_in("compare", "spec_runs")
    of_prompts = tuple(name for name in measures_in("compare") if name not in of_conditions)
    yield from _differences("", a, b, of_prompts, groups, settings)
    for name, (x, y) in pairs.items():
        yield from _differences(name, _prompts_at(a, x), _prompts_at(b, y), of_conditions, groups, settings)


def _prompts_at(prompts: pd.DataFrame, condition: Condition) -> pd.DataFrame:
    """What was measured of each prompt at a condition, by the names of the measures alone."""
    measured = {key: key.measure for key in prompts if isinstance(key, At) and key.condition == condition}
    return prompts[[*measured]].rename(columns=measured)


def _differences(
    condition: str,
    a: pd.DataFrame,
    b: pd.DataFrame,
    measures: tuple[str, ...],
    groups: pd.Series,
    settings: AnalysisSettings,
) -> Iterator[tuple[dict[str, object], Estimate]]:
    for measure in measures:
        both = pd.DataFrame({"a": a[measure], "b": b[measure]}).dropna()
        a_value, b_value = (average(measure, both[side].to_numpy(), settings).value for side in ("a", "b"))
        key: dict[str, object] = {"condition": condition, "measure": measure, "a": a_value, "b": b_value}
        codes = numbered(groups[both.index])[0]
        yield key, average(measure, (both["b"] - both["a"]).to_numpy(), settings, groups=codes)


def _sequences(
    a: Tables, b: Tables, pairs: Mapping[str, tuple[Condition, Condition]]
) -> Iterator[tuple[str, list[str], pd.DataFrame, pd.DataFrame]]:
    """What is compared token by token: words for it, the columns that give a token's place, both sides."""
    prefill_a, prefill_b = (frame_of(tables, "prefill_tokens").assign(repetition=0) for tables in (a, b))
    yield "rendered prompt", ["position"], prefill_a, prefill_b
    yield "answer", ["step"], frame_of(a, "decode_tokens"), frame_of(b, "decode_tokens")
    for name, (x, y) in pairs.items():
        left, right = of_condition(frame_of(a, "spec_tokens"), x), of_condition(frame_of(b, "spec_tokens"), y)
        yield f"speculative answer, {name}", ["step"], _emitted(left), _emitted(right)
        yield f"drafted tokens, {name}", ["round", "index"], _drafted(left), _drafted(right)


def _drafted(tokens: pd.DataFrame) -> pd.DataFrame:
    return tokens[(tokens["kind"] == "draft").to_numpy(dtype=bool)]


def _emitted(tokens: pd.DataFrame) -> pd.DataFrame:
    """The tokens of the answer with `step`, their place in it."""
    emitted = tokens[tokens["emitted"].to_numpy(dtype=bool)].sort_values(["prompt_id", "repetition", "round", "index"])
    return emitted.assign(step=emitted.groupby(["prompt_id", "repetition"], observed=True).cumcount())


def _first_difference(a: pd.DataFrame, b: pd.DataFrame, places: list[str]) -> dict[str, object]:
    """The columns of `compare_tokens` for one kind of sequence; empty if no generation is in both runs."""
    generation = ["prompt_id", "repetition"]
    common = a[generation].drop_duplicates().merge(b[generation].drop_duplicates())
    if common.empty:
        return {}
    left, right = (side[[*generation, *places, "token_id", "token"]].merge(common) for side in (a, b))
    joined = left.merge(right, on=[*generation, *places], how="outer", suffixes=("_a", "_b"), sort=True)
    differing = joined[(joined["token_id_a"] != joined["token_id_b"]).to_numpy(dtype=bool)]
    n_prompts = common["prompt_id"].nunique()
    outcome: dict[str, object] = {
        "n_prompts": n_prompts,
        "n_equal": n_prompts - differing["prompt_id"].nunique(),
    }
    if len(differing):
        first = differing.iloc[0]
        outcome |= {key: first[key] for key in generation}
        outcome["place"] = ", ".join(f"{place} {first[place]}" for place in places)
        for side in ("a", "b"):
            known = pd.notna(first[f"token_id_{side}"])
            outcome[f"id_{side}"] = int(first[f"token_id_{side}"]) if known else None
            outcome[f"token_{side}"] = first[f"token_{side}"] if known else None
    return outcome
