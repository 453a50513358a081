"""What dropping keys costs, on made-up tables with planted costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from analysed import FAST, SMALL
from synthetic import prompt_tables
from synthetic_retention import with_retention

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.retention import MEASURES, retention_claim_measures, retention_costs
from specstudy.analysis.study import analyze
from specstudy.records import RetentionCost

SETTINGS = AnalysisSettings(bootstrap_samples=200)
N_PROMPTS = 15


def costs(tables: dict[str, pd.DataFrame]) -> dict[tuple[str, str, str, float, str], RetentionCost]:
    rows = retention_costs(tables, SETTINGS)
    found = {(row.model, row.measure, row.policy, row.budget, row.minus): row for row in rows}
    assert len(found) == len(rows)
    return found


def test_means_and_paired_differences_are_those_planted() -> None:
    found = costs(with_retention(prompt_tables(SMALL), sink_bits=0.5, accept_lost=0.1))
    # One whole cache; three budgets with a mean and a difference to it, and two policies against the first four.
    assert len(found) == 2 * len(MEASURES) * (1 + 3 * (3 * 2 + 2))
    kl = found["verifier", "mean_kl_bits", "first_and_last", 0.5, ""]
    assert kl.estimate == pytest.approx(0.5 / 3, abs=0.02)
    sink = found["verifier", "mean_kl_bits", "random_and_last", 0.5, "first_and_last"]
    assert sink.estimate == pytest.approx(0.5, abs=0.02)
    assert sink.ci_low < sink.estimate < sink.ci_high
    assert sink.n == N_PROMPTS
    lost = found["draft", "mean_expected_accept", "last", 0.75, "all"]
    assert lost.estimate == pytest.approx(-0.1, abs=0.005)
    assert lost.ci_high - lost.ci_low < 0.01, "paired: prompts differ by far more"
    assert found["draft", "mean_expected_accept", "all", 1.0, ""].n == N_PROMPTS


def test_answers_are_averaged_within_the_prompt_and_prompts_without_a_value_are_left_out() -> None:
    tables = with_retention(prompt_tables(SMALL))
    runs = tables["retention_runs"]
    found = costs(tables)["verifier", "mean_nll_bits", "last", 0.25, ""]
    assert found.n == N_PROMPTS - 1
    rows = runs[(runs["model"] == "verifier") & (runs["policy"] == "last") & (runs["budget"] == 0.25)]
    assert found.estimate == pytest.approx(rows.groupby("prompt_id")["mean_nll_bits"].mean().mean())


def test_prompts_of_one_group_are_drawn_together() -> None:
    tables = with_retention(prompt_tables(SMALL))
    ids = tables["prefill_prompts"]["prompt_id"]
    told = pd.DataFrame({"prompt_id": ids, "category": "c", "group": [f"g{i // 3}" for i in range(len(ids))]})
    key = ("verifier", "mean_nll_bits", "all", 1.0, "")
    alone, together = costs(tables)[key], costs({**tables, "prompts": told})[key]
    assert alone.estimate == pytest.approx(together.estimate)
    assert (alone.ci_low, alone.ci_high) != (together.ci_low, together.ci_high)


def test_claims_speak_of_half_of_the_keys() -> None:
    tables = with_retention(prompt_tables(SMALL), sink_bits=0.5, accept_lost=0.1)
    measures = retention_claim_measures(tables)
    assert measures["sink_keys_kl_bits"].mean() == pytest.approx(0.5, abs=0.02)
    assert measures["windowed_draft_accept"].mean() == pytest.approx(-0.1, abs=0.005)
    runs = tables["retention_runs"]
    assert retention_claim_measures({"retention_runs": runs[runs["budget"] != 0.5]}).empty
    assert retention_claim_measures({}).empty


@pytest.mark.parametrize(
    ("sink_bits", "accept_lost", "verdicts"),
    [(0.5, 0.02, ("supported", "supported")), (0.0, 0.15, ("contradicted", "contradicted"))],
)
def test_claims_are_answered(sink_bits: float, accept_lost: float, verdicts: tuple[str, str]) -> None:
    tables = with_retention(prompt_tables(SMALL), sink_bits, accept_lost)
    answered = {claim.claim_id: claim for claim in analyze(tables, FAST).claims if claim.family == "retention"}
    assert [answered[name].verdict for name in NAMES] == [*verdicts]
    assert all(answered[name].n == N_PROMPTS for name in NAMES)


NAMES = ("sink_is_worth_more_than_random_keys", "windowed_draft_keeps_acceptance")


def test_a_run_that_dropped_nothing_says_which_experiment_does() -> None:
    result = analyze(prompt_tables(replace(SMALL, n_per_category=1)), FAST)
    assert result.retention == []
    told = [claim for claim in result.claims if claim.family == "retention"]
    assert [claim.verdict for claim in told] == ["not_run", "not_run"]
    assert all("experiment=kv_retention" in claim.note for claim in told)
    assert not np.isfinite(sum(claim.estimate or np.nan for claim in told))
