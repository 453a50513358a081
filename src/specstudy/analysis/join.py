"""Tables joined into the two frames that the analysis works on: one row a prompt, one row a token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd

from specstudy import formulas
from specstudy.analysis.bootstrap import Codes, Floats
from specstudy.analysis.measures import (
    ANSWER_MEASURES,
    CONDITION_KEYS,
    CONTEXT_MEASURES,
    At,
    condition_suffixes,
    measures_in,
)
from specstudy.condition import Condition
from specstudy.records import TABLES

Tables = Mapping[str, pd.DataFrame]

# What is known of a drafted token before it is tested.
DRAFT_MEASURES = ("draft_entropy_bits", "draft_top_prob", "draft_top_margin", "p_draft")


def frame_of(tables: Tables, name: str) -> pd.DataFrame:
    """A table by name; one that a stage has not written is an empty frame with its columns."""
    frame = tables.get(name)
    return pd.DataFrame(columns=[f.name for f in fields(TABLES[name])]) if frame is None else frame


def numbers(series: pd.Series) -> Floats:
    """A column as float64, null as NaN, whatever pandas holds it in."""
    return series.to_numpy(dtype=np.float64, na_value=np.nan)


def rows_of(frame: pd.DataFrame) -> Iterator[Any]:
    """The rows as named tuples."""
    return iter(frame.itertuples(index=False))


def conditions_measured(tables: Tables) -> list[Condition]:
    """The conditions in `spec_runs`, in order of gamma."""
    keys = frame_of(tables, "spec_runs")[list(CONDITION_KEYS)].drop_duplicates()
    return sorted(
        Condition(
            gamma=int(row.gamma),
            proposer=str(row.proposer),
            stop=str(row.stop),
            temperature=float(row.temperature),
            top_p=float(row.top_p),
            stop_threshold=None if pd.isna(row.stop_threshold) else float(row.stop_threshold),
        )
        for row in rows_of(keys)
    )


def of_condition(frame: pd.DataFrame, condition: Condition) -> pd.DataFrame:
    """The rows of a spec table that belong to one condition."""
    kept = np.ones(len(frame), dtype=bool)
    for key in CONDITION_KEYS:
        value = getattr(condition, key)
        kept &= (frame[key].isna() if value is None else frame[key] == value).to_numpy(dtype=bool)
    return frame[kept]


def prompt_frame(tables: Tables) -> pd.DataFrame:
    """One row a prompt, indexed by prompt_id: category, group, context measures, both entropies and expected acceptance
    of the verifier's own answers; acceptance and speed by condition.

    What depends on the condition stands under `At`. Repetitions are averaged within the prompt first. Measures are
    float64, NaN where a prompt has none; a prompt that failed in a stage keeps what the other stages measured.
    """
    suffixes = condition_suffixes(conditions_measured(tables))
    parts: list[pd.DataFrame | pd.Series] = [
        _averaged(frame_of(tables, "prefill_prompts"), CONTEXT_MEASURES),
        _first_position(frame_of(tables, "prefill_tokens")),
        _averaged(frame_of(tables, "decode_runs"), ANSWER_MEASURES),
        *(_at(named, _averaged(_spec_runs(tables, named[0]), measures_in("conditions"))) for named in suffixes.items()),
    ]
    return _keys(tables).join(parts, how="left")


LEAST_DISTINCT_TRIGRAMS = 0.6
"""An answer with a smaller share of distinct trigrams repeats itself."""


def repeats_itself(runs: pd.DataFrame) -> np.ndarray:
    """Which answers (rows of `decode_runs`) repeat themselves: bool (rows,)."""
    return numbers(runs["distinct_trigram_share"]) < LEAST_DISTINCT_TRIGRAMS


def without_repetitive(tables: Tables) -> Tables:
    """The tables without the verifier's answers that repeat themselves."""
    runs = frame_of(tables, "decode_runs")
    return {**tables, "decode_runs": runs[~repeats_itself(runs)]}


def _keys(tables: Tables) -> pd.DataFrame:
    names = ("prefill_prompts", "decode_runs", "spec_runs")
    keys = pd.concat([frame_of(tables, name)[["prompt_id", "category"]] for name in names])
    keys = keys.drop_duplicates("prompt_id").astype(object).set_index("prompt_id").sort_index()
    return keys.assign(group=groups_of(tables, keys.index.to_series()))


def groups_of(tables: Tables, prompt_ids: pd.Series) -> pd.Series:
    """The group of each prompt in a column of ids: what intervals draw together.

    A version of a prompt is of the group of its original; a prompt without a group is its own.
    """
    versions, grouped = frame_of(tables, "prompt_versions"), frame_of(tables, "prompts").dropna(subset="group")
    original = dict(zip(versions["prompt_id"], versions["original_id"], strict=True))
    originals = (original.get(prompt_id, prompt_id) for prompt_id in grouped["prompt_id"])
    known = dict(zip(originals, grouped["group"], strict=True))
    of_original = prompt_ids.astype(object).map(lambda prompt_id: original.get(prompt_id, prompt_id))
    return of_original.map(lambda prompt_id: known.get(prompt_id, prompt_id))


def group_codes(tables: Tables, prompt_ids: pd.Series | pd.Index) -> Codes:
    """The groups of `groups_of` as numbers from 0, in the order in which they come: int (rows,)."""
    return pd.factorize(groups_of(tables, pd.Series(prompt_ids)))[0].astype(np.intp)


def _first_position(tokens: pd.DataFrame) -> pd.DataFrame:
    first = tokens[(tokens["position"] == 0).to_numpy(dtype=bool)]
    return _averaged(first.assign(first_position_z_score=first["z_score"]), ("first_position_z_score",))


def _averaged(frame: pd.DataFrame, columns: tuple[str, ...]) -> pd.DataFrame:
    values = {column: numbers(frame[column]) for column in columns}
    keys = pd.Index(frame["prompt_id"].astype(object), name="prompt_id")
    return pd.DataFrame(values, index=keys).groupby(level=0).mean()


def _at(named: tuple[Condition, str], measures: pd.DataFrame) -> pd.DataFrame:
    return measures.rename(columns={name: At(name, *named) for name in map(str, measures)})


def _spec_runs(tables: Tables, condition: Condition) -> pd.DataFrame:
    runs = of_condition(frame_of(tables, "spec_runs"), condition)
    return runs.assign(theoretical_speedup_acceptance_rate=series_theory(runs, condition.gamma))


def series_theory(runs: pd.DataFrame, gamma: int) -> Floats:
    """The formula with accepted / proposed for alpha, as in mayankpallai 2026; NaN where a run has no theory at all."""
    rates, costs = numbers(runs["acceptance_rate"]), numbers(runs["cost_ratio_flops"])
    known = np.isfinite(rates) & np.isfinite(numbers(runs["theoretical_speedup_flops"]))
    values = [
        formulas.expected_speedup(rate, gamma, cost) if told else np.nan
        for rate, cost, told in zip(rates, costs, known, strict=True)
    ]
    return np.array(values, dtype=np.float64)


def decoded_tokens(tables: Tables) -> pd.DataFrame:
    """Every token of the verifier's own answers: nothing is censored by acceptance."""
    measures = ("entropy_bits", "draft_entropy_bits", "expected_accept")
    return _token_frame(tables, frame_of(tables, "decode_tokens"), ("repetition", "step"), measures)


def tested_tokens(tables: Tables, condition: Condition) -> pd.DataFrame:
    """Drafted tokens that the accept test reached, with `accepted` 1.0 or 0.0; untested ones are not evidence."""
    tokens = of_condition(frame_of(tables, "spec_tokens"), condition)
    tokens = tokens[tokens["outcome"].isin(["accepted", "rejected"]).to_numpy(dtype=bool)]
    tokens = tokens.assign(accepted=(tokens["outcome"] == "accepted").to_numpy(dtype=np.float64))
    measures = ("accepted", "expected_accept", "verifier_entropy_bits", *DRAFT_MEASURES)
    return _token_frame(tables, tokens, ("repetition", "round", "index"), measures)


def _token_frame(
    tables: Tables, frame: pd.DataFrame, order: tuple[str, ...], measures: tuple[str, ...]
) -> pd.DataFrame:
    keys = {key: pd.Categorical(frame[key]) for key in ("prompt_id", "category")}
    keys["group"] = keys["prompt_id"]
    if frame_of(tables, "prompts")["group"].notna().any():
        keys["group"] = pd.Categorical(groups_of(tables, frame["prompt_id"]))
    places = {key: numbers(frame[key]).astype(np.int64) for key in order}
    return pd.DataFrame({**keys, **places, **{measure: numbers(frame[measure]) for measure in measures}})
