"""Which content tokens are sinks, and whether they are sinks at other positions and in other prompts too.

The literature calls content tokens that gather attention after position 0 secondary sinks: an early article, the first
full stop. What decides, the token or the place, shows in how often the same token is a sink elsewhere.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings, Codes, Estimate
from specstudy.analysis.means import nested_mean, ratio
from specstudy.analysis.sinks.positions import CONTENT, Z_MEASURES
from specstudy.records import SinkRecurrence, SinkToken

LOWER_THRESHOLD = 3.0
"""Beside the run's own threshold, at which few or no content positions are sinks."""
TOKENS_LISTED = 12

BASE_POSITIONS, SAME_PROMPT = "sink_positions", "sinks_at_other_occurrences"
BASE_TOKENS, OTHER_PROMPTS = "sink_tokens", "sinks_in_other_prompts"


def thresholds_asked(settings: AnalysisSettings) -> list[float]:
    """The run's threshold and the lower one, if they differ."""
    return list(dict.fromkeys((settings.sink_threshold, LOWER_THRESHOLD)))


def content_sinks(positions: pd.DataFrame, measure: str, threshold: float) -> pd.DataFrame:
    """Content positions that carry the z-score: `is_sink`, and `occurrence` of the token in its prompt, from 0."""
    content = positions[(positions["place"] == CONTENT).to_numpy() & positions[measure].notna().to_numpy()]
    occurrence = content.groupby(["prompt", "token_id"]).cumcount()
    return content.assign(is_sink=content[measure] > threshold, occurrence=occurrence)


def sink_tokens(positions: pd.DataFrame, settings: AnalysisSettings) -> list[SinkToken]:
    """The content tokens that are most often sinks, for each z-score and threshold; none where no content is a sink."""
    n_groups = int(positions["group"].nunique())
    return [
        _token_row(occurrences, measure, threshold, n_groups, settings)
        for measure in Z_MEASURES
        for threshold in thresholds_asked(settings)
        for occurrences in _commonest(content_sinks(positions, measure, threshold))
    ]


def _commonest(content: pd.DataFrame) -> list[pd.DataFrame]:
    """The occurrences of each token that is most often a sink; ties go to the larger share, then the smaller id."""
    counts = content.groupby("token_id")["is_sink"].agg(["sum", "mean"]).reset_index()
    counts = counts[counts["sum"] > 0].sort_values(["sum", "mean", "token_id"], ascending=[False, False, True])
    groups = content[content["token_id"].isin(counts["token_id"].head(TOKENS_LISTED))].groupby("token_id")
    return [groups.get_group(token_id) for token_id in counts["token_id"].head(TOKENS_LISTED)]


def _token_row(
    found: pd.DataFrame, measure: str, threshold: float, n_groups: int, settings: AnalysisSettings
) -> SinkToken:
    """`found` is every occurrence of one token, at least one of them a sink."""
    sinks, is_first = found[found["is_sink"]], (found["occurrence"] == 0).to_numpy()
    later = found.loc[~is_first, "is_sink"]
    codes: Codes = found["group"].to_numpy().astype(np.intp)
    share = nested_mean(found["is_sink"].to_numpy(dtype=np.float64), codes, n_groups, settings)
    return SinkToken(
        measure=measure,
        threshold=threshold,
        token_id=int(found["token_id"].iloc[0]),
        token=str(found["token"].iloc[0]),
        n_occurrences=len(found),
        n_prompts=int(found["prompt"].nunique()),
        n_sinks=len(sinks),
        n_prompts_as_sink=int(sinks["prompt"].nunique()),
        mean_position=float(sinks["position"].mean()),
        mean_z=float(sinks[measure].mean()),
        share_first_occurrence=float(found.loc[is_first, "is_sink"].mean()),
        share_later_occurrences=float(later.mean()) if len(later) else None,
        **share.row(),
    )


def sink_recurrence(positions: pd.DataFrame, settings: AnalysisSettings) -> list[SinkRecurrence]:
    """How often the token of a sink is a sink elsewhere, beside how common that is, for each z-score and threshold.

    `sinks_at_other_occurrences`: of the other occurrences of a sink's token in its prompt, the share that are sinks;
    beside `sink_positions`, the share among all content positions. `sinks_in_other_prompts`: of the other prompts that
    hold a sink's token, the share where it is a sink at least once; beside `sink_tokens`, the share among
    all pairs of a prompt and a token in it. Shares are ratios of sums, resampled by the prompt of the sink.
    """
    n_groups = int(positions["group"].nunique())
    return [
        SinkRecurrence(quantity=quantity, measure=measure, threshold=threshold, n=share.n, **share.row())
        for measure in Z_MEASURES
        for threshold in thresholds_asked(settings)
        for quantity, share in _recurrence(content_sinks(positions, measure, threshold), n_groups, settings).items()
    ]


def _recurrence(content: pd.DataFrame, n_groups: int, settings: AnalysisSettings) -> dict[str, Estimate]:
    pairs = content.groupby(["prompt", "group", "token_id"])["is_sink"].agg(n="size", n_sinks="sum").reset_index()
    pairs["is_sink"] = pairs["n_sinks"] > 0
    prompts_with = pairs.groupby("token_id")["is_sink"].agg(n_holding="size", n_sinking="sum")
    sinks = pairs[pairs["is_sink"]].join(prompts_with, on="token_id").astype(np.float64)

    def share(rows: pd.DataFrame, hits: pd.Series, cases: pd.Series, otherwise: str) -> Estimate:
        codes = rows["group"].to_numpy().astype(np.intp)
        counts = [np.bincount(codes, values, n_groups).astype(np.float64) for values in (hits, cases)]
        return ratio(counts[0], counts[1], settings) if counts[1].any() else Estimate(0, null_reason=otherwise)

    none, alone = "no content position carries this z-score", "no content token that is a sink occurs elsewhere"
    # Each of a pair's n_sinks has n - 1 other occurrences in its prompt, n_sinks - 1 of them sinks.
    others, sinking = sinks["n_sinks"] * (sinks["n"] - 1), sinks["n_sinks"] * (sinks["n_sinks"] - 1)
    return {
        BASE_POSITIONS: share(pairs, pairs["n_sinks"], pairs["n"], none),
        SAME_PROMPT: share(sinks, sinking, others, alone),
        BASE_TOKENS: share(pairs, pairs["is_sink"], pairs["is_sink"] * 0 + 1, none),
        OTHER_PROMPTS: share(sinks, sinks["n_sinking"] - 1, sinks["n_holding"] - 1, alone),
    }
