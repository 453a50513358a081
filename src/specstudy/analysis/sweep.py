"""A sweep: the same study at several points of its configuration, a row a point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.join import Tables, conditions_measured, decoded_tokens, frame_of, prompt_frame
from specstudy.analysis.machine import machine_state
from specstudy.analysis.means import average, numbered
from specstudy.analysis.measures import CONDITION_KEYS, At, measures_in
from specstudy.analysis.version_effects import unaltered_only
from specstudy.analysis.within import median_within_prompt
from specstudy.condition import Condition
from specstudy.tables.differences import flatten

ENTROPY_LINK = "entropy_link"
DRAFT_COLUMNS = ("draft_n_layers", "draft_n_training_answers", "draft_n_training_tokens")
SWEEP_MEASURES = measures_in("summary")
_FOLLOWS = {"spec.temperature": "decode.temperature", "spec.top_p": "decode.top_p"}


@dataclass(frozen=True)
class SweepPoint:
    """A finished run: its nested configuration, the name of its directory, its tables; `distillation` says how its
    draft was made (`DRAFT_COLUMNS`, as far as known)."""

    config: Mapping[str, object]
    run: str
    tables: Tables
    settings: AnalysisSettings
    distillation: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Sweep:
    """`rows`: a row a point (a row a condition where a point has several), with the varying keys, `run`, `n_prompts`,
    `n_errors`, and for each measure its average over prompts and the ends of its interval (`alpha`, `alpha_low`,
    `alpha_high`), why the machine lets its speeds decide nothing (`busy`, else empty), the median over prompts of the
    Spearman correlation of draft entropy with expected acceptance inside a prompt (`entropy_link`), and what is known
    of how the draft was distilled (`DRAFT_COLUMNS`, NaN where nothing is).
    `keys`: the dotted keys that vary, in the order of the configuration."""

    keys: list[str]
    rows: pd.DataFrame

    @property
    def draft_amount(self) -> str | None:
        """What says how long drafts were trained, known at every point: tokens, else answers. None unless several
        drafts are compared."""
        amounts = DRAFT_COLUMNS[2], DRAFT_COLUMNS[1]
        if "models.draft" not in self.keys or self.rows[DRAFT_COLUMNS[0]].isna().any():
            return None
        return next((name for name in amounts if self.rows[name].notna().all()), None)

    @property
    def numeric_key(self) -> str | None:
        """The key that measures can be drawn against: the only one that varies, if it is a number everywhere."""
        if len(self.keys) != 1:
            return None
        values = self.rows[self.keys[0]]
        numeric = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
        return self.keys[0] if numeric and values.notna().all() else None


def sweep(points: Sequence[SweepPoint]) -> Sweep:
    """The points side by side, in their order."""
    rows = [row for point in points for row in _rows(point)]
    keys = varying_keys([row.values for row in rows])
    frame = pd.DataFrame([{**{key: row.values.get(key) for key in keys}, **row.measured} for row in rows])
    estimates = [name + end for name in (*SWEEP_MEASURES, ENTROPY_LINK) for end in ("", "_low", "_high")]
    return Sweep(keys, frame.astype(dict.fromkeys([*estimates, *DRAFT_COLUMNS], np.float64)))


def varying_keys(flat: Sequence[Mapping[str, object]]) -> list[str]:
    """Keys whose values differ between flat configurations; not those that only follow another one."""
    keys = dict.fromkeys(key for values in flat for key in values)
    varying = [key for key in keys if any(values.get(key) != flat[0].get(key) for values in flat)]
    return [
        key
        for key in varying
        if _FOLLOWS.get(key) not in varying or any(values.get(key) != values.get(_FOLLOWS[key]) for values in flat)
    ]


@dataclass(frozen=True)
class _Row:
    values: Mapping[str, object]
    measured: Mapping[str, object]


def _rows(point: SweepPoint) -> list[_Row]:
    flat = flatten(point.config)
    values = {key: _plain(value) for key, value in flat.items()}
    listed = _listed_keys(flat)
    tables = unaltered_only(point.tables)
    prompts = prompt_frame(tables)
    about_run = {"run": point.run, "n_prompts": len(prompts), "n_errors": len(frame_of(point.tables, "errors"))}
    about_run |= {name: point.distillation.get(name.removeprefix("draft_")) for name in DRAFT_COLUMNS}
    about_run |= _entropy_link(tables, point.settings)
    conditions = conditions_measured(tables)
    busy = machine_state(tables, dict.fromkeys(conditions, "")).busy
    rows = [
        _Row(
            values | {f"spec.{key}": getattr(condition, key) for key in listed},
            about_run | {"busy": busy[condition]} | _means(prompts, condition, point.settings),
        )
        for condition in conditions
    ]
    return rows or [_Row(values, about_run | {"busy": ""} | _means(prompts, None, point.settings))]


def _means(prompts: pd.DataFrame, condition: Condition | None, settings: AnalysisSettings) -> dict[str, object]:
    means: dict[str, object] = {}
    groups = numbered(prompts["group"])[0]
    for measure in SWEEP_MEASURES:
        name = At(measure, condition) if condition and measure not in prompts else measure
        column = prompts[name].to_numpy(dtype=np.float64) if name in prompts else np.full(len(prompts), np.nan)
        means |= average(measure, column, settings, groups=groups).columns(measure, f"{measure}_")
    return means


def _entropy_link(tables: Tables, settings: AnalysisSettings) -> dict[str, object]:
    """On the verifier's own answers, nothing censored."""
    tokens = decoded_tokens(tables)
    codes, groups = (numbered(tokens[key])[0] for key in ("prompt_id", "group"))
    x, y = (tokens[name].to_numpy(dtype=np.float64) for name in ("draft_entropy_bits", "expected_accept"))
    return median_within_prompt(x, y, codes, "spearman", settings, groups).columns(ENTROPY_LINK, f"{ENTROPY_LINK}_")


def _listed_keys(flat: Mapping[str, object]) -> set[str]:
    """The condition's keys of which the point runs several values."""
    values = {key: flat.get(f"spec.{key}") for key in CONDITION_KEYS}
    listed = {key for key, value in values.items() if isinstance(value, list) and len(value) > 1}
    return listed | {"stop_threshold"} if "stop" in listed else listed


def _plain(value: object) -> object:
    """A value as one cell: a list of one is that one, a longer one is text."""
    if isinstance(value, list):
        return value[0] if len(value) == 1 else ",".join(map(str, value))
    return value
