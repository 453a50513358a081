"""What keys are worth in a cache: measures of `retention_runs` over prompts, by what is kept and in differences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings, Floats
from specstudy.analysis.join import Tables, frame_of, groups_of, numbers
from specstudy.analysis.means import mean, numbered
from specstudy.records import RetentionCost

ALL, FIRST, LAST, RANDOM = "all", "first_and_last", "last", "random_and_last"
MEASURES = ("mean_expected_accept", "mean_kl_bits", "mean_nll_bits", "mean_entropy_bits", "attention_lost")
# Each against the whole cache, and as many keys without the first against as many with them.
_MINUS = {ALL: (), FIRST: (ALL,), LAST: (ALL, FIRST), RANDOM: (ALL, FIRST)}
CLAIMED_BUDGET = 0.5


def retention_costs(tables: Tables, settings: AnalysisSettings) -> list[RetentionCost]:
    """The rows of the table of this name; none for a run that dropped nothing."""
    frame = frame_of(tables, "retention_runs")
    rows: list[RetentionCost] = []
    for model in sorted(set(frame["model"])):
        for measure in MEASURES:
            values = _by_prompt(frame, model, measure)
            groups = numbered(groups_of(tables, values.index.to_series()))[0]
            for (policy, budget, minus), own in _asked(values):
                found = mean(own, settings, groups=groups)
                key = {"model": model, "measure": measure, "policy": policy, "budget": budget, "minus": minus}
                rows.append(RetentionCost(**key, n=found.n, **found.row()))
    return rows


def _by_prompt(frame: pd.DataFrame, model: str, measure: str) -> pd.DataFrame:
    """A row a prompt, a column a policy and budget; a prompt's answers are averaged."""
    rows = frame[(frame["model"] == model).to_numpy(dtype=bool)]
    keys = {name: rows[name].astype(object) for name in ("prompt_id", "policy", "budget")}
    values = pd.DataFrame({**keys, measure: numbers(rows[measure])})
    return values.groupby([*keys])[measure].mean().unstack(["policy", "budget"])


def _asked(values: pd.DataFrame) -> Iterator[tuple[tuple[str, float, str], Floats]]:
    """Policy, budget and what is subtracted, with the values (prompts,)."""
    ways: Any = values.columns  # of two levels
    for policy, budget in ways:
        own = values[policy, budget].to_numpy(dtype=np.float64)
        yield (policy, budget, ""), own
        for minus in _MINUS[policy]:
            other = values[minus, 1.0 if minus == ALL else budget].to_numpy(dtype=np.float64)
            yield (policy, budget, minus), own - other


def retention_claim_measures(tables: Tables) -> pd.DataFrame:
    """Per prompt (its index), with half of the prompt's keys kept: `sink_keys_kl_bits`, the verifier's divergence where
    four random keys are kept instead of the first four, minus that with the first four; `windowed_draft_accept`, the
    change of expected acceptance where the draft keeps the first four and the last. Empty where this was not asked."""
    frame = frame_of(tables, "retention_runs")
    if CLAIMED_BUDGET not in set(frame["budget"]):
        return pd.DataFrame()
    kl, accept = _by_prompt(frame, "verifier", "mean_kl_bits"), _by_prompt(frame, "draft", "mean_expected_accept")
    return pd.DataFrame(
        {
            "sink_keys_kl_bits": kl[RANDOM, CLAIMED_BUDGET] - kl[FIRST, CLAIMED_BUDGET],
            "windowed_draft_accept": accept[FIRST, CLAIMED_BUDGET] - accept[ALL, 1.0],
        }
    )
