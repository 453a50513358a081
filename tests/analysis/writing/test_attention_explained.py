"""What attention explains on prompts that the fit has not seen, and what it is not credited with."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.writing.explained import (
    ASKED,
    ATTENTION,
    DRAFT_ENTROPY,
    RIDGE,
    TOKEN_FED,
    attention_explained,
    squared_errors,
)
from specstudy.analysis.writing.tokens import HELD, OUTCOMES
from specstudy.records import AttentionExplained
from specstudy.tables.schema import to_table

SETTINGS = AnalysisSettings(bootstrap_samples=300)


def written(n_prompts: int = 40, n_steps: int = 60, seed: int = 0) -> pd.DataFrame:
    """Two answers a prompt; nothing follows from anything, and every answer has a level of its own."""
    rng = np.random.default_rng(seed)
    n = 2 * n_prompts * n_steps
    answer = np.repeat(np.arange(2 * n_prompts), n_steps)
    columns = {name: rng.normal(size=n) + rng.normal(size=2 * n_prompts)[answer] for name in (*ATTENTION, *OUTCOMES)}
    columns |= {"ln_step": np.log(np.tile(np.arange(n_steps), 2 * n_prompts) + 2), "fed_surprisal": rng.gamma(1, 1, n)}
    columns |= dict(zip(HELD[2:], np.eye(4)[rng.integers(4, size=n), :3].T, strict=True))
    columns["draft_entropy_bits"] = rng.gamma(2, 1, n)
    keys = {"prompt_id": [f"p{i // 2:03d}" for i in answer], "repetition": answer % 2}
    return pd.DataFrame({**keys, **columns}).assign(group=lambda frame: frame["prompt_id"])


def found(tokens: pd.DataFrame) -> dict[tuple[str, str], AttentionExplained]:
    result = attention_explained(tokens, SETTINGS)
    assert to_table("attention_explained", result.rows).num_rows == len(ASKED)
    assert [*result.gains] == [*ASKED]
    return {(row.outcome, row.held): row for row in result.rows}


def test_errors_are_those_of_least_squares_on_the_other_folds() -> None:
    rng = np.random.default_rng(0)
    x, groups, folds = rng.normal(size=(300, 3)), np.arange(300) % 6, np.array([0, 1, 2, 0, 1, 2])
    y = x @ [1.0, -2.0, 0.5] + rng.normal(size=300)
    expected = np.zeros(6)
    for fold in range(3):
        own = folds[groups] == fold
        # The penalty as so many tokens more, in which each column in turn is 1 and the outcome 0.
        seen = np.vstack([x[~own], np.sqrt(RIDGE) * np.eye(3)])
        slopes = np.linalg.lstsq(seen, np.append(y[~own], np.zeros(3)), rcond=None)[0]
        np.add.at(expected, groups[own], (y[own] - x[own] @ slopes) ** 2)
    np.testing.assert_allclose(squared_errors(x, y, groups, folds), expected)


def test_nothing_explains_nothing() -> None:
    for row in found(written()).values():
        assert -0.03 < row.estimate <= 0.005
        assert abs(row.r2_held) < 0.02
        assert (row.n, row.n_tokens) == (40, 4800)


def test_what_attention_alone_knows_is_its_gain() -> None:
    tokens = written()
    signal = tokens["sink_mass_last_third"] - tokens.groupby(["prompt_id", "repetition"])[
        "sink_mass_last_third"
    ].transform("mean")
    tokens["entropy_bits"] += signal
    tokens["expected_accept"] += signal - tokens["draft_entropy_bits"]
    rows = found(tokens)
    # Variance 1 of the outcome's own, 1 of attention, 2 of draft entropy (gamma of shape 2).
    assert rows["entropy_bits", TOKEN_FED].estimate == pytest.approx(1 / 2, abs=0.03)
    assert rows["expected_accept", TOKEN_FED].estimate == pytest.approx(1 / 4, abs=0.03)
    last = rows["expected_accept", DRAFT_ENTROPY]
    assert last.r2_held == pytest.approx(2 / 4, abs=0.03)
    assert last.ci_low < last.estimate < last.ci_high
    assert last.estimate == pytest.approx(1 / 4, abs=0.03)
    assert last.r2_with_attention == pytest.approx(last.r2_held + last.estimate)


def test_a_curve_in_draft_entropy_is_not_credited_to_attention() -> None:
    tokens = written()
    tokens["expected_accept"] = np.exp(-tokens["draft_entropy_bits"]) + 0.02 * tokens["expected_accept"]
    tokens["sink_mass_last_third"] = np.exp(-tokens["draft_entropy_bits"])
    rows = found(tokens)
    assert rows["expected_accept", TOKEN_FED].estimate > 0.9
    assert rows["expected_accept", DRAFT_ENTROPY].estimate < 0.02


def test_levels_of_answers_take_no_part() -> None:
    tokens = written()
    level = np.random.default_rng(1).normal(size=80)[np.repeat(np.arange(80), 60)]
    tokens["entropy_bits"] += 5 * level
    tokens["sink_mass_last_third"] += 5 * level
    assert found(tokens)["entropy_bits", TOKEN_FED].estimate < 0.005


def test_a_prompt_helps_to_predict_no_other_of_its_group() -> None:
    """Each group of two prompts has a slope of its own: known only to those who see the other prompt."""
    tokens = written(40)
    number = tokens["prompt_id"].str[1:].astype(int)
    side = np.random.default_rng(2).normal(size=(20, 24)) * 3
    tokens["entropy_bits"] += (tokens[ATTENTION].to_numpy() * side[number // 2]).sum(axis=1)
    alone = found(tokens)["entropy_bits", TOKEN_FED].estimate
    whole = found(tokens.assign(group=(number // 2).map("g{:02d}".format)))["entropy_bits", TOKEN_FED].estimate
    assert alone > whole + 0.02


def test_few_prompts_or_layers_have_a_reason() -> None:
    few = attention_explained(written(4), SETTINGS).rows
    assert all(row.estimate is None and "4 independent prompts" in row.null_reason for row in few)
    shallow = attention_explained(written(6).assign(**dict.fromkeys(ATTENTION, np.nan)), SETTINGS).rows
    assert all(row.estimate is None and "layers" in row.null_reason for row in shallow)
    unmeasured = attention_explained(written(6).assign(expected_accept=np.nan), SETTINGS).rows
    assert [row.estimate is None for row in unmeasured] == [False, True, True]
    greedy = attention_explained(written(6).assign(expected_accept=1.0), SETTINGS).rows
    assert [row.null_reason for row in greedy] == [None, *["it does not vary within answers"] * 2]
    assert attention_explained(written()[:0], SETTINGS).rows == []
