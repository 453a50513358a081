"""How repeatable each measure is within one generation, and so how strong a correlation could be at most.

A measure is taken on odd and on even tokens apart; their correlation over prompts, stepped up to full length by
Spearman and Brown (2r / (1 + r)), is its reliability. Noise in two measures bounds their correlation by
sqrt(r_x * r_y) (Spearman 1904). Neighbouring tokens are alike, so halves that alternate flatter the measure a little.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings, Estimate
from specstudy.analysis.correlation import correlate
from specstudy.analysis.join import Tables, frame_of, numbers, of_condition
from specstudy.analysis.means import estimate_frame
from specstudy.analysis.measures import CONTEXT_MEASURES, At, Key
from specstudy.condition import Condition


def reliabilities(
    tables: Tables,
    decoded: pd.DataFrame,
    tested: Mapping[Condition, pd.DataFrame],
    suffixes: Mapping[Condition, str],
    settings: AnalysisSettings,
) -> pd.DataFrame:
    """Split-half reliability of entropy and of each acceptance number: measure, n prompts, value, low, high."""

    def rows() -> Iterator[tuple[Mapping[str, Any], Estimate]]:
        entropy = decoded.sort_values(["prompt_id", "repetition", "step"])
        yield {"measure": "mean_entropy_bits"}, split_half(_halves(entropy, "entropy_bits"), settings)
        for condition, tokens in tested.items():
            named = condition, suffixes[condition]
            tokens = tokens.sort_values(["prompt_id", "repetition", "round", "index"])
            for measure, column in (("alpha", "accepted"), ("alpha_expected", "expected_accept")):
                yield {"measure": At(measure, *named)}, split_half(_halves(tokens, column), settings)
            rounds = of_condition(frame_of(tables, "spec_rounds"), condition)
            yield {"measure": At("acceptance_rate", *named)}, split_half(_round_halves(rounds), settings)

    return estimate_frame(rows(), ("measure",))


def _halves(tokens: pd.DataFrame, column: str) -> pd.DataFrame:
    """Mean of odd and of even tokens, counted within each prompt: frame (prompts, 2)."""
    parity = tokens.groupby("prompt_id", observed=True).cumcount() % 2
    return tokens[column].groupby([tokens["prompt_id"], parity], observed=True).mean().unstack()


def _round_halves(rounds: pd.DataFrame) -> pd.DataFrame:
    keys = [rounds["prompt_id"], rounds["round"] % 2]
    sums = pd.DataFrame({key: numbers(rounds[key]) for key in ("n_accepted", "n_proposed")}, index=rounds.index)
    sums = sums.groupby(keys).sum()
    return (sums["n_accepted"] / sums["n_proposed"]).unstack()


def split_half(halves: pd.DataFrame, settings: AnalysisSettings) -> Estimate:
    """Reliability of the whole from its halves: float64 (prompts, 2) -> estimate; null where the halves disagree."""
    if halves.shape[1] < 2:
        return Estimate(0, null_reason="one token a prompt cannot be split")
    odd, even = (halves.iloc[:, i].to_numpy(dtype=np.float64) for i in (0, 1))
    half = correlate(odd, even, np.arange(len(odd)), "pearson", settings)
    if half.value is None or half.low is None or half.high is None:
        return half
    if half.value <= 0:
        return Estimate(half.n, null_reason=f"the halves do not agree (r = {half.value:.2f})")
    return Estimate(half.n, spearman_brown(half.value), spearman_brown(half.low), spearman_brown(half.high))


def spearman_brown(half: float) -> float:
    """Reliability of a measure twice as long: 2r / (1 + r); 0 where the halves do not agree."""
    return 2 * half / (1 + half) if half > 0 else 0.0


def ceiling(reliability: pd.DataFrame, x: Key, y: Key) -> float | None:
    """The strongest correlation that the noise in x and y leaves room for; None if a reliability is not known.

    Context measures are computed, not sampled: the same prompt gives the same value, so theirs is 1.
    """
    known: dict[Key, float] = dict.fromkeys(CONTEXT_MEASURES, 1.0)
    known.update(zip(reliability["measure"], reliability["value"], strict=True))
    product = known.get(x, np.nan) * known.get(y, np.nan)
    return None if np.isnan(product) else float(np.sqrt(product))
