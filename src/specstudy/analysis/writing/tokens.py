"""Tokens beside the attention of the verifier's query that gave or tested them, and what is known of the token fed.

A query is that of the token before, so what it attends to follows from that token too: from its kind and from how
unexpected it was. Both are held constant, and so is how far the text has come.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from specstudy.analysis.join import Tables, frame_of, groups_of, numbers, of_condition
from specstudy.condition import Condition
from specstudy.records import ATTENTION_MEASURES, THIRDS

ANSWER = ["prompt_id", "repetition"]
LAYERS = ("all", *THIRDS)
COLUMNS = {
    (measure, layers): measure if layers == "all" else f"{measure}_{layers}"
    for measure in ATTENTION_MEASURES
    for layers in LAYERS
}
"""The column of each measure over some layers."""
OUTCOMES = ("entropy_bits", "draft_entropy_bits", "expected_accept")
FATE = "spec_accept_prob"
"""The chance that a drafted token passes the test."""
CONTINUOUS = ("ln_step", "fed_surprisal")
KINDS = ("fed_is_number", "fed_is_word_start", "fed_is_punctuation")
HELD = (*CONTINUOUS, *KINDS)
"""What is held constant: ln of the token's place in the answer (from 1), surprisal (nats) and kind of the token fed. A
token of no kind named continues a word, or is white space or special."""


def written_tokens(tables: Tables) -> pd.DataFrame:
    """The tokens of the verifier's own answers but the first of each, in order: a row a token.

    Keys, group, token; `OUTCOMES`, the columns of `COLUMNS` and `HELD` as float64, NaN where there is none.
    """
    key = [*ANSWER, "step"]
    rows = frame_of(tables, "decode_tokens").sort_values(key, kind="stable")
    rows = rows.assign(surprisal=-numbers(rows["logprob"]))
    tokens = _with_fed(rows, np.ones(len(rows), dtype=bool))[[*key, "token", *OUTCOMES, *HELD]]
    return _with_attention(tokens, frame_of(tables, "decode_attention_steps"), key, tables)


def drafts_tested(tables: Tables, condition: Condition) -> pd.DataFrame:
    """The tested draft tokens at a condition, likewise, with `FATE` and `draft_entropy_bits` for outcomes.

    Surprisal is that under the distribution which the verifier samples from.
    """
    key = [*ANSWER, "round", "index"]
    rows = of_condition(frame_of(tables, "spec_tokens"), condition).sort_values(key, kind="stable")
    chances = np.maximum(numbers(rows["p_verifier"]), np.finfo(np.float64).tiny)
    rows = rows.assign(surprisal=-np.log(chances), **{FATE: numbers(rows["accept_prob"])})
    tokens = _with_fed(rows, rows["emitted"].to_numpy(dtype=bool))
    tokens = tokens[tokens["outcome"].isin(["accepted", "rejected"]).to_numpy(dtype=bool)]
    attention = of_condition(frame_of(tables, "spec_attention_steps"), condition)
    return _with_attention(tokens[[*key, FATE, "draft_entropy_bits", *HELD]], attention, key, tables)


def _with_fed(rows: pd.DataFrame, emitted: np.ndarray) -> pd.DataFrame:
    """Rows in the order of their answers with the columns of `HELD`: of the last token before that is in the text.

    `rows`: token, surprisal; `emitted` bool (rows,): which are part of the text.
    """
    text = rows.loc[emitted, [*ANSWER, "token", "surprisal"]]
    own = pd.DataFrame({"fed_surprisal": text["surprisal"], **_kinds(text)}, index=text.index).reindex(rows.index)
    answers = [rows[name] for name in ANSWER]
    fed = own.groupby(answers).ffill().groupby(answers).shift()
    before = pd.Series(emitted, index=rows.index).groupby(answers).cumsum() - emitted
    return rows.assign(ln_step=np.log(before.to_numpy(dtype=np.float64) + 1), **fed)


def _kinds(text: pd.DataFrame) -> dict[str, pd.Series]:
    """Which tokens of whole texts, in order, are of each kind (1.0 or 0.0), by the first that fits.

    A word begins as in `decode_tokens.is_word_start`: with letters behind white space, the token's own or the one
    before it. A partial character counts as a letter.
    """
    tokens = text["token"].astype(str)
    before = tokens.groupby([text[name] for name in ANSWER]).shift(fill_value=" ")
    has_letters = tokens.str.contains(r"[^\W_]|\ufffd")
    is_number = tokens.str.contains(r"\d")
    is_start = has_letters & (tokens.str.contains(r"^\s") | before.str.contains(r"\s$")) & ~is_number
    is_punctuation = ~has_letters & tokens.str.contains(r"\S")
    kinds = zip(KINDS, (is_number, is_start, is_punctuation), strict=True)
    return {name: kind.astype(np.float64) for name, kind in kinds}


def _with_attention(tokens: pd.DataFrame, attention: pd.DataFrame, key: list[str], tables: Tables) -> pd.DataFrame:
    """Tokens that were fed something, with the attention measured there and the group of their prompt."""
    joined = tokens.merge(attention[[*key, *COLUMNS.values()]], on=key)
    measured = [str(name) for name in joined if name not in (*key, "token")]
    joined = joined.assign(**{name: numbers(joined[name]) for name in measured}).dropna(subset=[*HELD])
    return joined.assign(group=groups_of(tables, joined["prompt_id"])).reset_index(drop=True)
