"""Whether the template tokens that close the prompt are sinks, or get what any token so near the end would get.

All content is no measure for them: attention is stronger near the queries. So they are held against the last content
tokens of the same prompt, which are nearly as near.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings, Estimate
from specstudy.analysis.join import Tables, group_codes
from specstudy.analysis.means import mean
from specstudy.analysis.sinks.positions import BOUNDARY, CONTENT, Z_MEASURES
from specstudy.records import SinkAnswer

N_LAST_CONTENT = 6
"""Content tokens at the prompt's end that the boundary is held against: about as many as a boundary has."""
BOUNDARY_GAIN = "boundary_minus_last_content"
SINK_GAIN = 1.0
"""A robust standard deviation of content: what the difference must be over for the boundary to be called a sink."""


def boundary_gain(positions: pd.DataFrame) -> pd.DataFrame:
    """Mean z-score of the boundary minus that of the last six content tokens of the same prompt, by each z-score: a row
    a prompt (prompt_id), NaN where either carries none."""
    content = positions[(positions["place"] == CONTENT).to_numpy()]
    boundary = positions[(positions["place"] == BOUNDARY).to_numpy()]
    last = content.groupby("prompt_id").tail(N_LAST_CONTENT)
    near, at_end = (part.groupby("prompt_id")[list(Z_MEASURES)].mean() for part in (last, boundary))
    gain: pd.DataFrame = at_end - near
    return gain


def boundary_answers(gain: pd.DataFrame, tables: Tables, settings: AnalysisSettings) -> list[SinkAnswer]:
    """The mean over prompts of each column of `boundary_gain`."""
    rows, groups = [], group_codes(tables, gain.index)
    for measure in Z_MEASURES:
        found = mean(gain[measure].to_numpy(dtype=np.float64), settings, groups=groups)
        if not found.n:
            found = Estimate(0, null_reason="no prompt has this z-score both at the boundary and in its last content")
        rows.append(SinkAnswer(quantity=BOUNDARY_GAIN, measure=measure, n=found.n, **found.row()))
    return rows
