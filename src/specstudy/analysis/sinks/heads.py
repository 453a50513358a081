"""First-token attention by layer and head, and how the literature's sink rate goes together with the z-scores."""

from __future__ import annotations

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings, Floats
from specstudy.analysis.correlation import correlate
from specstudy.analysis.join import Tables, frame_of, numbers
from specstudy.analysis.means import numbered
from specstudy.analysis.sinks.companions import LENGTH
from specstudy.analysis.sinks.positions import FIRST, Z_MEASURES
from specstudy.records import SinkAnswer

SINK_RATE_AGREEMENT, SINK_RATE_AGREEMENT_GIVEN_LENGTH = "sink_rate_with_first_z", "sink_rate_with_first_z_given_length"


def head_map(tables: Tables) -> pd.DataFrame:
    """Mean over prompts of first-token attention: a row a layer, a column a head (NaN where a layer has fewer)."""
    heads = frame_of(tables, "prefill_heads")
    columns = {name: numbers(heads[name]) for name in ("layer", "head", "first_token_attention")}
    frame = pd.DataFrame(columns).astype({"layer": np.int64, "head": np.int64})
    return frame.pivot_table(index="layer", columns="head", values="first_token_attention", aggfunc="mean")


def sink_rate_agreement(positions: pd.DataFrame, prompts: pd.DataFrame, settings: AnalysisSettings) -> list[SinkAnswer]:
    """Spearman over prompts of the sink rate with each z-score of position 0: as it is, and with ln n_tokens held
    constant (both follow the length of the prompt)."""
    first = positions[positions["place"] == FIRST].set_index("prompt_id")[list(Z_MEASURES)]
    joined = prompts[["sink_rate", LENGTH, "group"]].join(first)
    rate, groups = joined["sink_rate"].to_numpy(dtype=np.float64), numbered(joined["group"])[0]
    log_length: Floats = np.log(joined[[LENGTH]].to_numpy(dtype=np.float64))
    rows = []
    for measure in Z_MEASURES:
        z = joined[measure].to_numpy(dtype=np.float64)
        for name, covariates in ((SINK_RATE_AGREEMENT, None), (SINK_RATE_AGREEMENT_GIVEN_LENGTH, log_length)):
            estimate = correlate(z, rate, groups, "spearman", settings, covariates)
            rows.append(SinkAnswer(quantity=name, measure=measure, n=estimate.n, **estimate.row()))
    return rows
