"""What only claims speak about: measures of a prompt and of a decoded token that no table holds as they are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from specstudy.analysis.entropy_bound import MIN_ENTROPY_NATS, lower_bound
from specstudy.analysis.join import Tables, frame_of, numbers
from specstudy.analysis.measures import THEORIES, At
from specstudy.analysis.retention import retention_claim_measures
from specstudy.analysis.round_theory import tokens_of_rounds
from specstudy.analysis.sinks.study import SinkAnalysis
from specstudy.condition import Condition


def with_claim_measures(
    prompts: pd.DataFrame, tables: Tables, suffixes: Mapping[Condition, str], sinks: SinkAnalysis
) -> pd.DataFrame:
    """The prompt frame with the measures that claims need beside those of the study (float64, NaN where none)."""
    parts: list[pd.DataFrame | pd.Series] = [
        sinks.boundary_gain.add_prefix("boundary_gain_"),
        sinks.first_token,
        _commitment(frame_of(tables, "decode_tokens")),
        _numbers(frame_of(tables, "decode_tokens")),
        _over_acceptance_rate(prompts, suffixes),
        tokens_of_rounds(tables, suffixes),
        _speedup_over_theory(prompts, suffixes),
        retention_claim_measures(tables),
    ]
    return prompts.join(parts, how="left")


def with_bound(decoded: pd.DataFrame) -> pd.DataFrame:
    """Decoded tokens with `bound_violated`: 1.0 where the expected acceptance lies under the entropy bound."""
    nats, accept = decoded["draft_entropy_bits"].to_numpy() * np.log(2), decoded["expected_accept"].to_numpy()
    known = (nats >= MIN_ENTROPY_NATS) & np.isfinite(accept)
    violated = np.where(known, accept < lower_bound(nats), np.nan)
    return decoded.assign(bound_violated=violated.astype(np.float64))


def _by_prompt(frame: pd.DataFrame, column: str) -> pd.Series:
    return (
        pd.Series(numbers(frame[column]), index=frame["prompt_id"].astype(object), name=column).groupby(level=0).mean()
    )


def _commitment(tokens: pd.DataFrame) -> pd.Series:
    """Mean entropy of tokens that begin a word minus that of tokens that continue one.

    Punctuation, white space and special tokens neither begin nor continue a word.
    """
    starts = tokens["is_word_start"].to_numpy(dtype=bool)
    continues = ~starts & tokens["token"].astype(str).str.match(r"\w").to_numpy(dtype=bool)
    difference = _by_prompt(tokens[starts], "entropy_bits") - _by_prompt(tokens[continues], "entropy_bits")
    return difference.rename("commitment_entropy_bits")


def _numbers(tokens: pd.DataFrame) -> pd.Series:
    """Mean entropy where a token with a digit is written minus that where another word is begun or continued."""
    texts = tokens["token"].astype(str)
    numbers_written = texts.str.contains(r"\d").to_numpy(dtype=bool)
    words = texts.str.contains(r"[^\W\d_]").to_numpy(dtype=bool) & ~numbers_written
    difference = _by_prompt(tokens[numbers_written], "entropy_bits") - _by_prompt(tokens[words], "entropy_bits")
    return difference.rename("number_entropy_bits")


def _over_acceptance_rate(prompts: pd.DataFrame, suffixes: Mapping[Condition, str]) -> pd.DataFrame:
    """Accepted / tested minus accepted / proposed."""
    differences = {
        At("alpha_over_acceptance_rate", *named): prompts[At("alpha", *named)] - prompts[At("acceptance_rate", *named)]
        for named in suffixes.items()
    }
    return pd.DataFrame(differences, index=prompts.index)


def _speedup_over_theory(prompts: pd.DataFrame, suffixes: Mapping[Condition, str]) -> pd.DataFrame:
    ratios = {}
    for named in suffixes.items():
        for theory in THEORIES:
            ratio = prompts[At("speedup", *named)] / prompts[At(theory, *named)]
            ratios[At(theory.replace("theoretical_speedup", "speedup_over_theory"), *named)] = ratio
    return pd.DataFrame(ratios, index=prompts.index)
