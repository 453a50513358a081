"""How quiet the machine was while speeds were measured, and what was measured together.

The machine is judged by what the timings themselves tell (docs/method.md says how the bounds were chosen): by load, by
how even the steps of the verifier alone were, and by whether clock and steps give the same speedup.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specstudy.analysis.bootstrap import Codes
from specstudy.analysis.join import Tables, frame_of, numbers, of_condition
from specstudy.condition import Condition

LOAD_ABOVE = 0.5
"""Processes wanting the CPU, beyond the threads in use, from which something else was at work."""
SPREAD = 1.5
"""90th over 10th percentile of the verifier's step times in one answer, from which its steps were disturbed."""
DISTURBED_SHARE = 0.25
"""Share of disturbed generations from which the machine counts as busy."""
DISAGREEMENT = 0.1
"""Clock and steps give different speedups from here on, as a share."""
PAUSE_S = 120.0
"""What was measured after a pause of so long (and of five times the usual) was measured another time."""


@dataclass(frozen=True)
class MachineState:
    """`busy`: by condition, why its speeds decide nothing, in words; empty where the machine was quiet.

    `sittings`: a row for each condition and time at which it was measured: condition, sitting (from 1), begun, ended
    (of the last generation's begin), n generations, n_disturbed, threads, and medians over generations: load_average,
    verifier_step_s, spread (90th over 10th percentile of step times).
    """

    busy: dict[Condition, str]
    sittings: pd.DataFrame

    @property
    def n_sittings(self) -> int:
        """At how many times the run's speeds were measured."""
        return int(self.sittings["sitting"].nunique())


def machine_state(tables: Tables, conditions: Mapping[Condition, str]) -> MachineState:
    """What the generations in `spec_runs` tell of the machine; `conditions` by how each is called."""
    runs = frame_of(tables, "spec_runs")
    runs = runs.assign(sitting=sittings(runs["measured_at"]), disturbed=disturbed(runs), spread=_spread(runs))
    by_condition = {condition: of_condition(runs, condition) for condition in conditions}
    rows = (row for condition, own in by_condition.items() for row in _sittings(conditions[condition], own))
    columns = ["condition", "sitting", "begun", "ended", "n", "n_disturbed", "threads", *_MEDIANS]
    return MachineState(
        {condition: why_busy(own) for condition, own in by_condition.items()}, pd.DataFrame(rows, columns=columns)
    )


def disturbed(runs: pd.DataFrame) -> NDArray[np.bool_]:
    """Which generations of `spec_runs` were timed while something else kept the machine busy: (rows,)."""
    above = numbers(runs["load_average"]) - numbers(runs["threads"]) > LOAD_ABOVE
    return above | (_spread(runs) > SPREAD)


def why_busy(runs: pd.DataFrame) -> str:
    """What in these generations says that the machine was busy; empty if nothing does."""
    if runs.empty:
        return ""
    reasons = []
    n_disturbed = int(disturbed(runs).sum())
    if n_disturbed > DISTURBED_SHARE * len(runs):
        load, threads = runs["load_average"].median(), runs["threads"].median()
        reasons.append(
            f"{n_disturbed} of {len(runs)} generations were disturbed (median load {load:.1f} with {threads:.0f} in "
            f"use, steps spread by {pd.Series(_spread(runs)).median():.1f})"
        )
    both = runs[["speedup", "speedup_steps"]].dropna()
    clock, steps = both["speedup"].median(), both["speedup_steps"].median()
    if abs(clock / steps - 1) > DISAGREEMENT:
        reasons.append(f"the clock gives a speedup of {clock:.2f}, the steps {steps:.2f}")
    return "; ".join(reasons)


def sittings(measured_at: pd.Series) -> Codes:
    """To which of the times at which a run was measured each generation belongs: int (rows,), from 1."""
    begun = pd.to_datetime(measured_at, format="ISO8601", utc=True)
    seconds = (begun - begun.min()).dt.total_seconds().to_numpy()
    order = np.argsort(seconds, kind="stable")
    gaps = np.diff(seconds[order])
    pauses = gaps > max(PAUSE_S, 5 * float(np.median(gaps))) if len(gaps) else np.zeros(0, dtype=bool)
    found = np.empty(len(seconds), dtype=np.intp)
    found[order] = 1 + np.concatenate([np.zeros(min(len(seconds), 1), dtype=np.intp), np.cumsum(pauses)])
    return found


_MEDIANS = ("load_average", "verifier_step_s", "spread")


def _sittings(name: str, runs: pd.DataFrame) -> Iterator[dict[str, object]]:
    for sitting, own in runs.groupby("sitting", sort=True):
        yield {
            "condition": name,
            "sitting": sitting,
            "begun": own["measured_at"].min(),
            "ended": own["measured_at"].max(),
            "n": len(own),
            "n_disturbed": int(own["disturbed"].sum()),
            "threads": int(own["threads"].median()),
            **{column: float(own[column].median()) for column in _MEDIANS},
        }


def _spread(runs: pd.DataFrame) -> NDArray[np.float64]:
    spread: NDArray[np.float64] = numbers(runs["verifier_step_p90_s"]) / numbers(runs["verifier_step_p10_s"])
    return spread
