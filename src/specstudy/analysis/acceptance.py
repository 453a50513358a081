"""How acceptance depends on the place in the round and on the draft's entropy, and where a round's time goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings, Estimate, Floats
from specstudy.analysis.join import Tables, frame_of, group_codes, numbers, of_condition
from specstudy.analysis.means import estimate_frame, median, nested_mean, numbered
from specstudy.analysis.measures import condition_name
from specstudy.condition import Condition

N_BINS = 10


def by_round_index(
    tested: Mapping[Condition, pd.DataFrame], suffixes: Mapping[Condition, str], settings: AnalysisSettings
) -> pd.DataFrame:
    """Share of tested tokens accepted at each place: condition, gamma, index, n, value, low, high, null_reason.

    A place is reached only if all before it were accepted, so later places hold the easier stretches of text.
    """
    return estimate_frame(
        (
            (
                {"condition": condition_name(condition, suffixes), "gamma": condition.gamma, "index": index},
                nested_mean(rows["accepted"].to_numpy(), *numbered(rows["group"]), settings),
            )
            for condition, tokens in tested.items()
            for index, rows in tokens.groupby("index", sort=True)
        ),
        ("condition", "gamma", "index"),
    )


def by_draft_entropy(decoded: pd.DataFrame, tested: pd.DataFrame | None, settings: AnalysisSettings) -> pd.DataFrame:
    """Acceptance in ten bins of draft entropy with equal numbers of decoded tokens.

    Columns: source (decoded: expected_accept of every decoded token; tested: share of tested tokens accepted), bin,
    bin_low, bin_high, draft_entropy_bits (mean in the bin), n, value, low, high, null_reason.
    """
    entropy = decoded["draft_entropy_bits"].to_numpy()
    known = entropy[np.isfinite(entropy)]
    keys = ("source", "bin", "bin_low", "bin_high", "draft_entropy_bits")
    if not len(known):
        return estimate_frame((), keys)
    edges = np.unique(np.quantile(known, np.linspace(0, 1, N_BINS + 1)))
    sources = [("decoded", decoded, "expected_accept")]
    if tested is not None:
        sources.append(("tested", tested, "accepted"))
    return estimate_frame(
        (row for source, tokens, measure in sources for row in _binned(source, tokens, measure, edges, settings)),
        keys,
    )


def _binned(
    source: str, tokens: pd.DataFrame, measure: str, edges: Floats, settings: AnalysisSettings
) -> Iterator[tuple[dict[str, object], Estimate]]:
    entropy, values = tokens["draft_entropy_bits"].to_numpy(), tokens[measure].to_numpy()
    bins = np.digitize(entropy, edges[1:-1])
    for number in range(max(1, len(edges) - 1)):
        rows = (bins == number) & np.isfinite(entropy) & np.isfinite(values)
        if rows.any():
            key = {
                "source": source,
                "bin": number,
                "bin_low": edges[number],
                "bin_high": edges[min(number + 1, len(edges) - 1)],
                "draft_entropy_bits": entropy[rows].mean(),
            }
            yield key, nested_mean(values[rows], *numbered(tokens["group"][rows]), settings)


def round_times(tables: Tables, suffixes: Mapping[Condition, str], settings: AnalysisSettings) -> pd.DataFrame:
    """Seconds a round spends, the median over prompts of the median of their rounds: condition, gamma, part (draft,
    verify, overhead), n prompts, value, low, high."""
    rounds = frame_of(tables, "spec_rounds")
    return estimate_frame(
        (
            (
                {"condition": condition_name(condition, suffixes), "gamma": condition.gamma, "part": part},
                _median_over_prompts(tables, own, f"{part}_s", settings),
            )
            for condition in suffixes
            for own in [of_condition(rounds, condition)]
            for part in ("draft", "verify", "overhead")
        ),
        ("condition", "gamma", "part"),
    )


def _median_over_prompts(tables: Tables, rounds: pd.DataFrame, column: str, settings: AnalysisSettings) -> Estimate:
    medians = pd.Series(numbers(rounds[column])).groupby(rounds["prompt_id"].to_numpy()).median()
    return median(numbers(medians), settings, groups=group_codes(tables, medians.index))
