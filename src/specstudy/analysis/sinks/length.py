"""What the soft context health would be from the number of positions alone.

The null is that every position draws its attention alike and independently: values are drawn from the study's own
content positions (attention over its mean in the prompt; a prompt at random, then a position of it), as many as a
prompt has. What the measured score does beyond that is not an effect of counting more positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from specstudy import formulas
from specstudy.analysis.bootstrap import AnalysisSettings, Codes, Estimate, Floats
from specstudy.analysis.correlation import correlate
from specstudy.analysis.sinks.positions import CONTENT
from specstudy.records import SinkAnswer

N_SIMULATIONS = 400
GRID_POINTS = 12
# Above this many drawn values a simulation of the whole study is repeated less often.
MAX_DRAWN = 20_000_000
OBSERVED, EXPECTED = "soft_with_length", "soft_with_length_by_chance"


def scored_attention(positions: pd.DataFrame) -> list[Floats]:
    """`attention_window` over content of each prompt that carries the soft score, divided by its mean there."""
    content = positions[(positions["place"] == CONTENT).to_numpy() & positions["attention_window"].notna().to_numpy()]
    groups = (group.to_numpy() for _, group in content.groupby("prompt")["attention_window"])
    return [v / v.mean() for v in groups if len(v) >= formulas.MIN_CONTENT_POSITIONS and v.sum() > 0]


def soft_scores(attention: list[Floats]) -> pd.DataFrame:
    """The soft score of each prompt beside the number of positions behind it: n_positions, context_health_soft."""
    scores = [formulas.context_health_soft(values) for values in attention]
    return pd.DataFrame(
        {"n_positions": [len(v) for v in attention], "context_health_soft": np.array(scores, dtype=np.float64)}
    )


def expected_by_length(attention: list[Floats], settings: AnalysisSettings) -> pd.DataFrame:
    """The null along the study's range of lengths: n_positions, value (mean), low and high (of single prompts)."""
    columns = ["n_positions", "value", "low", "high"]
    if not attention:
        return pd.DataFrame(columns=columns, dtype=np.float64)
    sizes = [len(v) for v in attention]
    lengths = np.unique(np.geomspace(min(sizes), max(sizes), GRID_POINTS).round().astype(int))
    rng = np.random.default_rng([settings.seed, len(attention), 0])
    tails = [(1 - settings.confidence) / 2, (1 + settings.confidence) / 2]
    pool, rows = Pool.of(attention), []
    for n in lengths:
        scores = pool.scores(int(n), N_SIMULATIONS, rng)
        rows.append([float(n), scores.mean(), *np.quantile(scores, tails)])
    return pd.DataFrame(rows, columns=columns)


@dataclass(frozen=True)
class Pool:
    """The attention of all prompts end to end, and where each prompt's begins and how long it is."""

    attention: Floats
    starts: Codes
    sizes: Codes

    @classmethod
    def of(cls, attention: list[Floats]) -> Pool:
        """The pool of `scored_attention`."""
        sizes = np.array([len(v) for v in attention])
        return cls(np.concatenate(attention), np.cumsum(sizes) - sizes, sizes)

    def scores(self, n: int, repetitions: int, rng: np.random.Generator) -> Floats:
        """Soft scores of `repetitions` made-up prompts of n positions: float64 (repetitions,)."""
        chosen = rng.integers(len(self.sizes), size=(repetitions, n))
        places = self.starts[chosen] + (rng.random((repetitions, n)) * self.sizes[chosen]).astype(np.intp)
        return formulas.evenness(self.attention[places])


def length_answers(attention: list[Floats], settings: AnalysisSettings) -> list[SinkAnswer]:
    """Spearman of the soft score with the number of positions: as measured (bootstrap interval over prompts), and under
    the null (mean and interval over simulated studies of the same lengths).
    """
    scores = soft_scores(attention)
    x, y = scores["n_positions"].to_numpy(dtype=np.float64), scores["context_health_soft"].to_numpy()
    observed = correlate(x, y, np.arange(len(x), dtype=np.intp), "spearman", settings)
    expected = Estimate(len(x), null_reason=observed.null_reason)
    if observed.value is not None:
        expected = _by_chance(attention, settings)
    return [
        SinkAnswer(quantity=name, measure="context_health_soft", n=e.n, **e.row())
        for name, e in ((OBSERVED, observed), (EXPECTED, expected))
    ]


def _by_chance(attention: list[Floats], settings: AnalysisSettings) -> Estimate:
    sizes = np.array([len(v) for v in attention])
    repetitions = int(np.clip(MAX_DRAWN // sizes.sum(), 20, N_SIMULATIONS))
    rng = np.random.default_rng([settings.seed, len(attention), 1])
    pool = Pool.of(attention)
    studies = np.stack([pool.scores(int(n), repetitions, rng) for n in sizes], axis=1)
    length_ranks, score_ranks = pd.Series(sizes).rank(), pd.DataFrame(studies).rank(axis=1)
    coefficients = score_ranks.T.corrwith(length_ranks).dropna().to_numpy(dtype=np.float64)
    if not len(coefficients) or np.ptp(coefficients) == 0:
        return Estimate(len(sizes), null_reason="the score does not vary in simulated studies")
    tails = [(1 - settings.confidence) / 2, (1 + settings.confidence) / 2]
    low, high = np.quantile(coefficients, tails)
    return Estimate(len(sizes), float(coefficients.mean()), float(low), float(high))
