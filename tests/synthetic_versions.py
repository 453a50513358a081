"""Made-up tables of a run with versions of prompts: those of `synthetic`, moved by known amounts and a little noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd
from synthetic import Plan, make_tables

from specstudy.prompts import Prompt
from specstudy.prompts.poisoned import POISONS
from specstudy.prompts.prompt import Version
from specstudy.prompts.versions import SEPARATOR, at_temperatures, with_hidden_positions, with_lowered_keys
from specstudy.records import LoweredKeys


@dataclass(frozen=True)
class Shift:
    """What a version adds to soft context health, to entropy (both kinds) and to expected acceptance; `moved` is the
    attention that it takes from a lowered key."""

    health: float = 0.0
    entropy_bits: float = 0.0
    acceptance: float = 0.0
    moved: float = 0.0


TEMPERATURES = (0.4, 1.0, 1.3)
NONE = Shift()
DEFAULT = Plan()


def poisoned_versions(original: str, doses: int = 2) -> list[Version]:
    """The versions that `prompts.poisoned` makes, without their texts."""
    made = [Version(original, "clean")]
    clean, unmoved = f"{original}{SEPARATOR}clean", f"{original}{SEPARATOR}unmoved"
    for dose in range(1, doses + 1):
        made.append(Version(original, "related", dose, clean))
        control = f"{original}{SEPARATOR}related{dose}"
        made += [Version(original, kind, dose, control) for kind in POISONS]
    made.append(Version(original, "unmoved", 0, clean))
    return [*made, *(Version(original, "moved", dose, unmoved) for dose in range(1, doses + 1))]


def version_tables(
    which: str, shifts: Mapping[str, Shift] | None = None, plan: Plan = DEFAULT, noise: float = 0.1
) -> dict[str, pd.DataFrame]:
    """Tables of a run with the versions `which` (poisoned, hidden, lowered, temperatures).

    `shifts` by kind are of one dose against the unaltered version; a version's measures are those of its original
    plus so many doses of it (one where a kind has no doses), plus noise.
    """
    base = make_tables(plan)
    categories = base["decode_runs"].drop_duplicates("prompt_id").set_index("prompt_id")["category"]
    versions = [v for name in categories.index for v in _versions(which, str(name))]
    rng = np.random.default_rng(plan.seed)
    told = pd.DataFrame(
        {
            "prompt_id": [f"{v.original_id}{SEPARATOR}{v.name}" for v in versions],
            "category": categories.loc[[v.original_id for v in versions]].to_numpy(),
            "original_id": [v.original_id for v in versions],
            "kind": [v.kind for v in versions],
            "dose": [v.dose for v in versions],
            "control_id": [v.control_id for v in versions],
            "hidden": [v.hidden for v in versions],
            "hidden_from_both": pd.array([v.hidden_from_both if v.hidden else None for v in versions], "boolean"),
            "lowered": [v.lowered for v in versions],
            "lowered_by": [v.lowered_by for v in versions],
            "lowered_in_both": pd.array([v.lowered_in_both if v.lowered else None for v in versions], "boolean"),
            "temperature": pd.array([v.temperature for v in versions], "Float64").to_numpy(np.float64, na_value=np.nan),
            "draft_temperature": pd.array([v.draft_temperature for v in versions], "Float64").to_numpy(
                np.float64, na_value=np.nan
            ),
        }
    )
    of = [(shifts or {}).get(v.kind, NONE) for v in versions]
    doses = np.array([v.dose or 1 for v in versions])

    def moved(name: str) -> np.ndarray:
        return np.array([getattr(s, name) for s in of]) * doses + noise * rng.normal(size=len(of))

    told = told.assign(health=moved("health"), bits=moved("entropy_bits"), accepted=moved("acceptance") / 2)
    tables = {"prompt_versions": told[list(told.columns[:13])], "lowered_keys": _masses(told, moved("moved"))}
    for name, frame in base.items():
        if name in tables:
            continue
        rows = told if which == "poisoned" or not name.startswith("prefill") else told[told["control_id"].isna()]
        tables[name] = _of_versions(frame, rows)
    return tables


def _masses(told: pd.DataFrame, moved: np.ndarray) -> pd.DataFrame:
    """`lowered_keys` of the versions that lower one: the verifier's, and the draft's where it is lowered in both."""
    lowered = told.assign(mass_before=0.5, mass_after=0.5 - moved, first_position_share=0.9)
    lowered = lowered[lowered["lowered"].notna()]
    of_draft = lowered[lowered["lowered_in_both"].to_numpy(dtype=bool)].assign(mass_before=0.9, mass_after=0.1)
    rows = pd.concat([lowered.assign(model="verifier"), of_draft.assign(model="draft")])
    return rows[[field.name for field in fields(LoweredKeys)]]


def _versions(which: str, original: str) -> list[Version]:
    if which == "poisoned":
        return poisoned_versions(original)
    prompt = [Prompt(original, "any", "?")]
    made = {
        "hidden": lambda: with_hidden_positions(prompt),
        "lowered": lambda: with_lowered_keys(prompt, (1.0, 2.0)),
        "temperatures": lambda: at_temperatures(prompt, TEMPERATURES, 0.7),
    }[which]()
    return [p.version for p in made if p.version]


def _of_versions(frame: pd.DataFrame, versions: pd.DataFrame) -> pd.DataFrame:
    if "prompt_id" not in frame:
        return frame
    told = versions[["original_id", "prompt_id", "health", "bits", "accepted", "temperature"]]
    told = told.rename(columns={"prompt_id": "version_id", "temperature": "imposed"})
    joined = told.merge(frame, left_on="original_id", right_on="prompt_id", how="inner")
    joined["prompt_id"] = joined["version_id"]
    shifts = {"context_health_soft": "health"}
    shifts |= dict.fromkeys(("alpha_expected", "expected_accept", "mean_expected_accept"), "accepted")
    shifts |= dict.fromkeys(("mean_entropy_bits", "entropy_bits", "sampling_entropy_bits"), "bits")
    for column, shift in shifts.items():
        if column in frame:
            joined[column] = joined[column] + joined[shift]
    if "temperature" in frame:
        joined["temperature"] = joined["imposed"].fillna(joined["temperature"])
    return joined[list(frame.columns)]
