"""What was fed before each token, and what attention is joined to it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from synthetic import Plan, make_tables

from specstudy.analysis.join import Tables
from specstudy.analysis.writing.tokens import FATE, KINDS, drafts_tested, written_tokens
from specstudy.condition import Condition
from specstudy.models.tokens import word_starts

CONDITION = Condition(4, "model", "none", 0.7, 0.9)
TEXTS = ["The", " cat", "s", " ate", " 12", ",", "\n", "so", "5", "\ufffd", "<|im_end|>", " (", " .5"]


def tables_of(texts: list[str]) -> Tables:
    """One answer of these tokens, surprisal ln(step + 2)."""
    tables = make_tables(Plan(n_per_category=1, categories=("code",), n_answer_tokens=len(texts)))
    surprisal = np.log(np.arange(len(texts)) + 2.0)
    return {**tables, "decode_tokens": tables["decode_tokens"].assign(token=texts, logprob=-surprisal)}


def test_the_token_fed_is_the_one_before() -> None:
    found = written_tokens(tables_of(TEXTS))
    assert found["step"].tolist() == [*range(1, len(TEXTS))]
    np.testing.assert_allclose(found["fed_surprisal"], np.log(np.arange(1, len(TEXTS)) + 1.0))
    np.testing.assert_allclose(found["ln_step"], np.log(np.arange(1, len(TEXTS)) + 1.0))
    kinds = ["fed_is_word_start", "fed_is_word_start", None, "fed_is_word_start", "fed_is_number", "fed_is_punctuation"]
    kinds += [None, "fed_is_word_start", "fed_is_number", None, None, "fed_is_punctuation"]
    for kind, (_, row) in zip(kinds, found.iterrows(), strict=True):
        assert [name for name in KINDS if row[name]] == ([kind] if kind else [])


def test_words_begin_where_the_decode_stage_says() -> None:
    texts = [text for text in TEXTS if not any(c.isdigit() for c in text)]
    found = written_tokens(tables_of(texts))
    assert found["fed_is_word_start"].astype(bool).tolist() == word_starts(texts)[:-1]


def test_attention_is_that_of_the_same_token() -> None:
    tables = make_tables(Plan(n_per_category=2, n_answer_tokens=20, repetitions=2))
    steps = tables["decode_attention_steps"]
    found = written_tokens({**tables, "decode_attention_steps": steps.sample(frac=1, random_state=0)})
    assert len(found) == len(steps) - 20
    joined = found.merge(steps, on=["prompt_id", "repetition", "step"], suffixes=("", "_there"))
    for name in ("sink_mass", "lookback_ratio_last_third", "previous_mass_first_third"):
        np.testing.assert_array_equal(joined[name], joined[f"{name}_there"])
    entropy = tables["decode_tokens"].set_index(["prompt_id", "repetition", "step"])["entropy_bits"]
    keys = pd.MultiIndex.from_frame(found[["prompt_id", "repetition", "step"]])
    np.testing.assert_array_equal(found["entropy_bits"], entropy[keys])


def test_a_tested_draft_token_follows_the_text_and_no_rejected_token() -> None:
    """Round 0: a, b accepted, c rejected, D corrected, (e untested); round 1: f accepted, g rejected, H."""
    rows = [
        *((0, 0, "draft", "accepted", " a"), (0, 1, "draft", "accepted", " 7"), (0, 2, "draft", "rejected", " c")),
        *((0, 3, "draft", "untested", " e"), (0, 4, "correction", None, "!")),
        *((1, 0, "draft", "accepted", "f"), (1, 1, "draft", "rejected", " g"), (1, 2, "correction", None, " H")),
    ]
    tokens = pd.DataFrame(rows, columns=["round", "index", "kind", "outcome", "token"])
    chances = np.array([0.5, 0.4, 0.0, np.nan, 0.3, 0.2, 0.1, 0.6])
    tokens = tokens.assign(
        prompt_id="p",
        repetition=0,
        emitted=tokens["outcome"].isin(["accepted"]) | tokens["outcome"].isna(),
        proposer="model",
        stop="none",
        stop_threshold=np.nan,
        temperature=0.7,
        top_p=0.9,
        gamma=4,
        p_verifier=chances,
        accept_prob=chances,
        draft_entropy_bits=1.0,
    )
    template = make_tables(Plan(n_per_category=1, n_answer_tokens=4))["spec_attention_steps"]
    attention = pd.DataFrame(0.5, index=tokens.index, columns=template.columns).assign(
        **{name: tokens[name] for name in tokens if name in template}
    )
    found = drafts_tested({"spec_tokens": tokens, "spec_attention_steps": attention}, CONDITION)
    assert [*zip(found["round"], found["index"], strict=True)] == [(0, 1), (0, 2), (1, 0), (1, 1)]
    np.testing.assert_allclose(found["fed_surprisal"], -np.log([0.5, 0.4, 0.3, 0.2]))
    np.testing.assert_allclose(found["ln_step"], np.log([2, 3, 4, 5]))
    assert found["fed_is_word_start"].tolist() == [1, 0, 0, 0]
    assert found["fed_is_number"].tolist() == [0, 1, 0, 0]
    assert found["fed_is_punctuation"].tolist() == [0, 0, 1, 0]
    np.testing.assert_allclose(found[FATE], [0.4, 0.0, 0.2, 0.1])


@pytest.mark.parametrize("missing", ["decode_tokens", "decode_attention_steps"])
def test_without_either_table_there_are_no_rows(missing: str) -> None:
    tables = make_tables(Plan(n_per_category=1, n_answer_tokens=8))
    assert written_tokens({name: frame for name, frame in tables.items() if name != missing}).empty
