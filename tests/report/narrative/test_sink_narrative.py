"""Sentences about sinks: made from the run's own numbers, whichever way they fall."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sink_tables import prompt_measures, prompt_tables

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.sinks.study import analyze_sinks
from specstudy.report.narrative import sinks as sink_narrative

FAST = AnalysisSettings(bootstrap_samples=200)
N = 12


def tables(boundary_z: float, generated_z: float, **options: Any) -> dict[str, pd.DataFrame]:
    """Twelve prompts whose closing tokens have one z-score at prefill and another from the answer, give or take."""
    rng = np.random.default_rng(0)
    content = [list(rng.normal(size=40)) for _ in range(N)]
    made = prompt_tables(content, structural_z=[9.0, 0, 0, *[0] * 5], **options)
    for name, column, z in (
        ("prefill_tokens", "z_score", boundary_z),
        ("decode_attention", "z_generated", generated_z),
    ):
        closing = made[name]["position"] >= 43
        made[name].loc[closing, column] = z + rng.normal(0, 0.3, closing.sum())
    return made


def said(made: dict[str, pd.DataFrame], **measures: np.ndarray) -> str:
    result: Any = SimpleNamespace(sinks=analyze_sinks(made, prompt_measures(N, **measures), FAST), settings=FAST)
    return "\n".join(sink_narrative.findings(result))


@pytest.mark.parametrize(
    ("boundary", "generated", "words"),
    [
        (4.0, 4.0, " agree."),
        (4.0, 0.0, "per visible query says yes, attention from the answer's tokens says no."),
        (0.0, 4.0, "from the answer's tokens says yes, attention per visible query says no."),
        (0.0, 0.0, " agree."),
        (1.0, 4.0, "Fewer than two"),
    ],
)
def test_the_boundary_is_answered_as_the_numbers_fall(boundary: float, generated: float, words: str) -> None:
    text = said(tables(boundary, generated))
    assert words in text
    assert "undefined (inside the observation window" in text


def test_the_tokens_of_the_run_that_all_measures_agree_on_are_named() -> None:
    made = tables(4.0, 0.0)
    last = made["decode_attention"]["position"] == 47
    made["decode_attention"].loc[last, "z_generated"] = np.linspace(4.0, 5.0, N)
    assert "agree on generation prompt +2." in said(made)


def test_without_decoding_one_measure_is_left_and_says_so() -> None:
    text = said({"prefill_tokens": tables(4.0, 0.0)["prefill_tokens"]})
    assert "undefined (attention from the answer's tokens was not measured)" in text
    assert "Fewer than two" in text


def test_a_degenerate_score_is_named_and_the_primary_measure_leads() -> None:
    text = said(tables(4.0, 0.0), context_health=np.full(N, 10.0))
    assert text.startswith("Soft context health")
    assert "takes one value" in text
    assert "constant (10)" in text


def test_the_better_predictor_is_the_one_with_the_interval_above() -> None:
    made = tables(0.0, 0.0)
    noise = np.random.default_rng(1).normal(size=len(made["prefill_tokens"]))
    made["prefill_tokens"]["attention_received"] *= np.exp(2 * noise)
    assert "predicts better" in said(made)


def test_no_data_no_sentence_about_it() -> None:
    text = said({})
    assert "second sink" not in text
    assert "content sink is" not in text
    assert "none (no content position" in text
