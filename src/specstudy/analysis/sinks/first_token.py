"""How attention to position 0 falls with the length of the prompt, against what more keys alone would make of it.

Softmax divides by all keys: where scores stay as they are, the odds of a key against the others fall as 1 / S, so the
slope of the logit of its attention on ln S is -1 (dilution). Above -1 the first token gains on the average other key. A
mean over heads that differ falls more slowly than each of them, so dilution is also computed head by head.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from specstudy.analysis.bootstrap import AnalysisSettings, Estimate, Floats
from specstudy.analysis.fit import slope
from specstudy.analysis.join import Tables, frame_of, group_codes, numbers
from specstudy.analysis.sinks.positions import FIRST
from specstudy.records import SinkAnswer

SLOPE, DILUTED_SLOPE = "first_token_slope", "first_token_slope_by_dilution"
# Attention of exactly 0 or 1 has no logit.
_LEAST = 1e-6


def first_token_frame(positions: pd.DataFrame) -> pd.DataFrame:
    """A row a prompt (prompt_id): first_token_attention, ln_n_tokens, first_token_logit.

    The attention is what the last prompt positions pay to position 0, mean over layers and heads. A mean over
    all queries would be larger on short prompts whatever a model does: early queries see few other keys.
    """
    n_tokens = positions.groupby("prompt_id").size()
    first = positions[(positions["place"] == FIRST).to_numpy()].set_index("prompt_id")["attention_window"]
    frame = pd.DataFrame({"first_token_attention": first, "ln_n_tokens": np.log(n_tokens)}, dtype=np.float64)
    return frame.assign(first_token_logit=_logit(frame["first_token_attention"]))


def slope_answers(frame: pd.DataFrame, tables: Tables, settings: AnalysisSettings) -> list[SinkAnswer]:
    """Slope of the logit on ln S, and what it would be where every head kept its scores whatever the length."""
    ln_length, groups = frame["ln_n_tokens"].to_numpy(), group_codes(tables, frame.index)
    found = {SLOPE: slope(ln_length, frame["first_token_logit"].to_numpy(), settings, groups)}
    diluted = diluted_logit(_heads(tables), frame["ln_n_tokens"])
    by_dilution = slope(ln_length, diluted.reindex(frame.index).to_numpy(dtype=np.float64), settings)
    found[DILUTED_SLOPE] = _without_interval(by_dilution)
    return [SinkAnswer(quantity=name, measure="first_token_attention", n=e.n, **e.row()) for name, e in found.items()]


def diluted_logit(heads: pd.DataFrame, ln_length: pd.Series) -> pd.Series:
    """Logit of the mean over heads of attention to position 0 if only length told prompts apart: a value a prompt.

    `heads`: a row a prompt, a column a head, its attention to position 0. Each head has its mean score over prompts,
    logit + ln S, at every length.
    """
    lengths = ln_length.reindex(heads.index)
    scores = pd.DataFrame(_logit(heads), heads.index).add(lengths, axis=0).mean()
    attention = expit(scores.to_numpy() - lengths.to_numpy()[:, None])
    return pd.DataFrame(attention, heads.index).mean(axis=1).map(logit)


def _heads(tables: Tables) -> pd.DataFrame:
    heads = frame_of(tables, "prefill_heads")
    attention = pd.Series(numbers(heads["first_token_attention"]), heads.index)
    keys = [heads["prompt_id"].astype(object), numbers(heads["layer"]), numbers(heads["head"])]
    return attention.groupby(keys).mean().unstack([1, 2])


def _logit(attention: Any) -> Floats:
    values: Floats = logit(np.clip(np.asarray(attention, dtype=np.float64), _LEAST, 1 - _LEAST))
    return values


def _without_interval(found: Estimate) -> Estimate:
    """A number that follows from lengths and heads: how it varies from sample to sample is no uncertainty."""
    if found.value is None:
        return found
    return Estimate(found.n, found.value, null_reason="computed from the lengths and heads of the study")
