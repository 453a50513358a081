"""A sweep: the same study at several points of its configuration, a row a point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.join import Tables, frame_of, prompt_frame, settings_measured
from specstudy.analysis.means import mean
from specstudy.analysis.measures import ACCEPTANCE_MEASURES, ENTROPY_MEASURE, SETTING_KEYS, setting_suffixes
from specstudy.tables.differences import flatten

SWEEP_MEASURES = (ENTROPY_MEASURE, *ACCEPTANCE_MEASURES, "speedup")
_FOLLOWS = {"spec.temperature": "decode.temperature", "spec.top_p": "decode.top_p"}


@dataclass(frozen=True)
class SweepPoint:
    """A finished run: its nested configuration, the name of its directory, its tables."""

    config: Mapping[str, object]
    run: str
    tables: Tables
    settings: AnalysisSettings


@dataclass(frozen=True)
class Sweep:
    """`rows`: a row a point (a row a setting where a point has several), with the varying keys, `run`, `n_prompts`,
    `n_errors`, and for each measure its mean over prompts and the ends of its interval (`alpha`, `alpha_low`,
    `alpha_high`). `keys`: the dotted keys that vary, in the order of the configuration."""

    keys: list[str]
    rows: pd.DataFrame

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
    estimates = [name + end for name in SWEEP_MEASURES for end in ("", "_low", "_high")]
    return Sweep(keys, frame.astype(dict.fromkeys(estimates, np.float64)))


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
    prompts = prompt_frame(point.tables)
    suffixes = setting_suffixes(settings_measured(point.tables))
    about_run = {"run": point.run, "n_prompts": len(prompts), "n_errors": len(frame_of(point.tables, "errors"))}
    rows = [
        _Row(
            values | {f"spec.{key}": getattr(setting, key) for key in listed},
            about_run | _means(prompts, suffix, point.settings),
        )
        for setting, suffix in suffixes.items()
    ]
    return rows or [_Row(values, about_run | _means(prompts, "", point.settings))]


def _means(prompts: pd.DataFrame, suffix: str, settings: AnalysisSettings) -> dict[str, object]:
    means: dict[str, object] = {}
    for measure in SWEEP_MEASURES:
        name = measure if measure == ENTROPY_MEASURE else measure + suffix
        column = prompts[name].to_numpy(dtype=np.float64) if name in prompts else np.zeros(0)
        estimate = mean(column, settings)
        means |= {measure: estimate.value, f"{measure}_low": estimate.low, f"{measure}_high": estimate.high}
    return means


def _listed_keys(flat: Mapping[str, object]) -> set[str]:
    """The setting's keys of which the point runs several values."""
    values = {key: flat.get(f"spec.{key}") for key in SETTING_KEYS}
    listed = {key for key, value in values.items() if isinstance(value, list) and len(value) > 1}
    return listed | {"stop_threshold"} if "stop" in listed else listed


def _plain(value: object) -> object:
    """A value as one cell: a list of one is that one, a longer one is text."""
    if isinstance(value, list):
        return value[0] if len(value) == 1 else ",".join(map(str, value))
    return value
