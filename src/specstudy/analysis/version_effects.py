"""What changing a prompt, or the model that reads it, changes in what is measured: paired within the original prompt.

A version (a row of `prompt_versions`) is compared with its control, which differs from it in nothing but what the
version is about; and the control with its own, so that what the control itself moves is seen beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings, Codes, Estimate, Floats
from specstudy.analysis.correlations import holm
from specstudy.analysis.join import Tables, frame_of, group_codes, numbers, of_condition
from specstudy.analysis.means import mean, numbered
from specstudy.analysis.measures import MEASURES, measures_in
from specstudy.condition import Condition
from specstudy.records import VersionEffect

PER_DOSE = 0


def unaltered_only(tables: Tables) -> Tables:
    """The tables without the rows of altered prompts: versions of one prompt are not independent prompts."""
    versions = frame_of(tables, "prompt_versions")
    if versions.empty:
        return tables
    altered = set(versions.loc[versions["control_id"].notna(), "prompt_id"])
    return {
        name: frame[~frame["prompt_id"].isin(altered).to_numpy(dtype=bool)] if "prompt_id" in frame else frame
        for name, frame in tables.items()
    }


def version_frame(tables: Tables, primary: Condition | None) -> pd.DataFrame:
    """A row a prompt version, indexed by prompt_id: the measures between versions, float64, NaN where one has none.

    Repetitions are averaged. `mean_expected_accept` is over the tokens of the verifier's own answer, nothing censored;
    the speculative measures are at the primary condition, but for the temperature, which a version may impose.
    """
    speculation = frame_of(tables, "spec_runs")
    imposed = frame_of(tables, "prompt_versions").dropna(subset="temperature")["prompt_id"]
    speculation = _of_condition(speculation, primary, imposed) if primary else speculation[:0]
    measured = {name: frame_of(tables, name) for name in ("prefill_prompts", "decode_runs", "decode_tokens")}
    parts = [_means(frame, name) for name, frame in (*measured.items(), ("spec_runs", speculation))]
    return pd.concat([*parts, _mass_moved(tables)], axis=1)[[*measures_in("versions")]]


def lowered_masses(tables: Tables) -> pd.DataFrame:
    """`mass_before` and `mass_after` of the verifier, indexed by prompt_id: a row a version that lowers a key."""
    rows = frame_of(tables, "lowered_keys")
    of_verifier = rows[(rows["model"] == "verifier").to_numpy(dtype=bool)].set_index("prompt_id")
    return of_verifier[["mass_before", "mass_after"]].astype(np.float64)


def _mass_moved(tables: Tables) -> pd.Series:
    """What lowering took from the lowered keys; from none, where keys were lowered in other versions, it took 0."""
    masses, versions = lowered_masses(tables), frame_of(tables, "prompt_versions")
    moved = (masses["mass_before"] - masses["mass_after"]).rename("mass_moved")
    if moved.empty:
        return moved
    as_they_are = versions.loc[versions["lowered"].isna().to_numpy(dtype=bool), "prompt_id"]
    return moved.reindex([*moved.index, *as_they_are], fill_value=0.0)


def _of_condition(runs: pd.DataFrame, condition: Condition, imposed: pd.Series) -> pd.DataFrame:
    """The rows of this condition; those of the prompts in `imposed` at whatever temperature was imposed on them."""
    instead = runs["prompt_id"].isin(imposed).to_numpy(dtype=bool)
    asked = np.where(instead, condition.temperature, numbers(runs["temperature"]))
    return of_condition(runs.assign(temperature=asked), condition)


def _means(frame: pd.DataFrame, table: str) -> pd.DataFrame:
    names = measures_in("versions", table)
    values = {name: numbers(frame[MEASURES[name].column or name]) for name in names}
    return pd.DataFrame(values, index=frame["prompt_id"].astype(object)).groupby(level=0).mean()


def version_effects(tables: Tables, measured: pd.DataFrame, settings: AnalysisSettings) -> list[VersionEffect]:
    """Paired differences by kind, dose and measure, and their slope over doses (a row with dose 0).

    `measured` is what `version_frame` gives. Intervals resample the original prompts, or groups of them. p-values are
    those of paired t-tests, with groups those of the bootstrap, Holm-adjusted within one measure.
    """
    if frame_of(tables, "prompt_versions").empty:
        return []
    rows: list[VersionEffect] = []
    for measure in measured.columns:
        rows += _adjusted(list(_effects_on(str(measure), tables, measured, settings)))
    return rows


def _effects_on(
    measure: str, tables: Tables, measured: pd.DataFrame, settings: AnalysisSettings
) -> Iterator[VersionEffect]:
    values, versions = measured[measure], frame_of(tables, "prompt_versions")
    altered = versions[versions["control_id"].notna().to_numpy(dtype=bool)]
    control_of = altered.set_index("prompt_id")["control_id"]
    for kind, rows in altered.groupby("kind", sort=False):
        own = differences(rows, values, rows["prompt_id"], rows["control_id"])
        control = differences(rows, values, rows["control_id"], rows["control_id"].map(control_of))
        groups = group_codes(tables, own.index)
        for dose in own.columns:
            estimates = (mean(numbers(frame[dose]), settings, groups=groups) for frame in (own, control))
            yield _row(str(kind), int(dose), measure, *estimates)
        if own.shape[1] > 1:
            # A control that is the same at every dose has no dose of its own.
            has_doses = bool(rows.groupby("original_id")["control_id"].nunique().max() > 1)
            own_slope, of_control = (mean(_slopes(frame), settings, groups=groups) for frame in (own, control))
            if not has_doses:
                of_control = Estimate(0, null_reason="one control")
            yield _row(str(kind), PER_DOSE, measure, own_slope, of_control)


def differences(
    rows: pd.DataFrame, values: pd.Series, changed: pd.Series | pd.Index, base: pd.Series, columns: str = "dose"
) -> pd.DataFrame:
    """`values` of the prompts `changed` minus those of `base`: a row an original, a column a dose (or what `columns` of
    `rows` names), NaN where one of the two was not measured."""
    difference = values.reindex(changed).to_numpy(dtype=np.float64) - values.reindex(base).to_numpy(dtype=np.float64)
    return rows.assign(difference=difference).pivot(index="original_id", columns=columns, values="difference")


def groups_of_originals(rows: pd.DataFrame, originals: pd.Index) -> Codes:
    """The groups of these originals as numbers; `rows` of versions have them in `group`."""
    return numbered(rows.groupby("original_id")["group"].first()[originals])[0]


def _slopes(differences: pd.DataFrame) -> Floats:
    """Change per dose of each original (prompts,): least squares through the origin, as dose 0 is no difference."""
    doses = np.array(differences.columns, dtype=np.float64)
    return np.asarray(differences.to_numpy(dtype=np.float64) @ doses / (doses @ doses), dtype=np.float64)


def _row(kind: str, dose: int, measure: str, own: Estimate, control: Estimate) -> VersionEffect:
    return VersionEffect(
        kind=kind,
        dose=dose,
        measure=measure,
        n=own.n,
        **own.columns("difference"),
        p_value=own.p_value,
        p_adjusted=None,
        **control.columns("control_difference", "control_ci_"),
        null_reason=own.null_reason,
    )


def _adjusted(rows: list[VersionEffect]) -> list[VersionEffect]:
    """The same rows with Holm-adjusted p-values; slopes restate the doses and are not counted twice."""
    with_doses = {row.kind for row in rows if row.dose != PER_DOSE}
    p_values = [row.p_value if row.dose != PER_DOSE or row.kind not in with_doses else None for row in rows]
    return [replace(row, p_adjusted=p) for row, p in zip(rows, holm(p_values), strict=True)]
