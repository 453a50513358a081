"""Attention to position 0 against dilution by more keys."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit
from sink_tables import by, prompt_tables

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.sinks.first_token import DILUTED_SLOPE, SLOPE, diluted_logit, first_token_frame, slope_answers
from specstudy.analysis.sinks.positions import position_frame

FAST = AnalysisSettings(bootstrap_samples=300)
LENGTHS = np.tile([50, 100, 200, 400], 8)
IDS = [f"p{i:02d}" for i in range(len(LENGTHS))]


def rows(mean_attention: np.ndarray, heads: np.ndarray) -> list:
    """Answers on prompts (prompts,) with heads (prompts, heads) of one layer."""
    ln_length = np.log(LENGTHS)
    frame = pd.DataFrame({"ln_n_tokens": ln_length, "first_token_logit": logit(mean_attention)}, index=IDS)
    prompt, head = np.indices(heads.shape)
    table = pd.DataFrame({"prompt_id": np.array(IDS)[prompt.ravel()], "layer": 0, "head": head.ravel()})
    table["first_token_attention"] = heads.ravel()
    return slope_answers(frame, {"prefill_heads": table}, FAST)


def diluted(scores: list[float], noise: np.random.Generator | None = None) -> np.ndarray:
    shift = 0.0 if noise is None else noise.normal(0, 0.1, (len(LENGTHS), 1))
    return expit(np.array(scores) - np.log(LENGTHS)[:, None] + shift)


def test_the_frame_is_that_from_the_last_prompt_positions() -> None:
    frame = first_token_frame(position_frame(prompt_tables([[0.0] * 9, [0.0] * 12], structural_z=[-1.0, *[0.0] * 7])))
    assert frame["first_token_attention"].tolist() == pytest.approx([np.exp(-1)] * 2)
    assert frame["ln_n_tokens"].tolist() == pytest.approx(np.log([17, 20]))
    assert frame["first_token_logit"].tolist() == pytest.approx([logit(np.exp(-1))] * 2)


def test_dilution_of_one_head_has_the_slope_minus_one() -> None:
    heads = diluted([4.0], np.random.default_rng(0))
    found = rows(heads[:, 0], heads)
    slope = by(found, quantity=SLOPE)
    assert slope.ci_low < -1 < slope.ci_high
    assert by(found, quantity=DILUTED_SLOPE).estimate == pytest.approx(-1)


def test_dilution_of_unlike_heads_is_flatter_in_their_mean_and_the_null_knows() -> None:
    heads = diluted([2.0, 8.0], np.random.default_rng(0))
    found = rows(heads.mean(axis=1), heads)
    slope = by(found, quantity=SLOPE)
    null = by(found, quantity=DILUTED_SLOPE)
    assert -0.6 < null.estimate < -0.2
    assert slope.ci_low < null.estimate < slope.ci_high
    assert null.null_reason


def test_dilution_head_by_head_by_hand() -> None:
    # Scores logit + ln S: 0 and ln 16 at both lengths, so at S = 4 shares of 1/5 and 4/5, at S = 16 of 1/17 and 1/2.
    heads = pd.DataFrame({0: [1 / 5, 1 / 17], 1: [4 / 5, 1 / 2]}, index=["a", "b"])
    found = diluted_logit(heads, pd.Series({"b": np.log(16), "a": np.log(4)}))
    assert expit(found.to_numpy()).tolist() == pytest.approx([1 / 2, (1 / 17 + 1 / 2) / 2])


def test_nothing_measured_gives_nothing() -> None:
    frame = first_token_frame(position_frame({}))
    assert all(row.estimate is None and row.null_reason for row in slope_answers(frame, {}, FAST))
