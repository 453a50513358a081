"""What the soft context health would be from where a prompt's positions lie, and what it owes to length beyond that.

Attention falls with the distance from the queries, so a long prompt, which has distant positions, spreads it less
evenly whatever it says. The null keeps what attention is like at each distance from the prompt's end: every position
has the attention of a position about as far from the end of any prompt. Longer prompts thin out all attention alike, so
each prompt's own level is divided out first.
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
N_PLACES = 12
# Above this many positions in all simulated studies there are fewer of them.
MAX_DRAWN = 20_000_000
MEASURE = "context_health_soft"
OBSERVED, EXPECTED, BEYOND = "soft_with_length", "soft_with_length_by_place", "soft_beyond_place_with_length"


@dataclass(frozen=True)
class ScoredAttention:
    """`attention_window` (positions,) over content of the prompts that carry the soft score, prompt after prompt, the
    number of positions and the group of each (prompts,), and each position's place: its distance from the prompt's end,
    in steps."""

    attention: Floats
    sizes: Codes
    groups: Codes
    places: Codes

    @property
    def prompts(self) -> Codes:
        """The prompt of each position, from 0: (positions,)."""
        return np.repeat(np.arange(len(self.sizes), dtype=np.intp), self.sizes)


def scored_attention(positions: pd.DataFrame) -> ScoredAttention:
    """What the soft score is made from, of `position_frame`."""
    n_after = positions.groupby("prompt")["position"].transform("max") - positions["position"]
    known = (positions["place"] == CONTENT) & positions["attention_window"].notna()
    columns = {"v": positions["attention_window"], "n_after": n_after}
    content = positions[["prompt", "group"]].assign(**columns)[known]
    by_prompt = content.groupby("prompt")["v"].transform
    kept = content[(by_prompt("size") >= formulas.MIN_CONTENT_POSITIONS) & (by_prompt("sum") > 0)]
    groups = kept.groupby("prompt")["group"].agg(["size", "first"]).astype(np.intp)
    sizes, of_prompt = (groups[name].to_numpy() for name in ("size", "first"))
    return ScoredAttention(kept["v"].to_numpy(dtype=np.float64), sizes, of_prompt, steps(kept["n_after"].to_numpy()))


def steps(distances: np.ndarray) -> Codes:
    """Distances in steps that grow with them, since near positions differ most."""
    if not len(distances):
        return np.zeros(0, dtype=np.intp)
    edges = np.unique(np.geomspace(distances.min() + 1, distances.max() + 2, N_PLACES + 1).round())
    steps: Codes = np.digitize(distances + 1, edges[1:-1]).astype(np.intp)
    return steps


def soft_scores(scored: ScoredAttention, drawn: Floats, settings: AnalysisSettings) -> pd.DataFrame:
    """A row a prompt: group, n_positions, context_health_soft, and of the scores under the null (simulations, prompts)
    the mean as expected, low and high."""
    low, high = np.quantile(drawn, settings.tails, axis=0)
    observed = scores_of(scored.attention, scored.sizes)
    by_place = {"expected": drawn.mean(axis=0), "low": low, "high": high}
    return pd.DataFrame({"group": scored.groups, "n_positions": scored.sizes, MEASURE: observed, **by_place})


def scores_of(attention: Floats, sizes: Codes) -> Floats:
    """Soft scores of the attention (..., positions) of prompts, one after the other: (..., prompts)."""
    starts = np.cumsum(sizes) - sizes
    sums = np.add.reduceat(attention, starts, axis=-1)
    excess = np.maximum(attention - np.repeat(sums / sizes, sizes, axis=-1), 0.0)
    even: Floats = formulas.MAX_HEALTH * (1.0 - np.add.reduceat(excess, starts, axis=-1) / sums)
    return even


def simulated_scores(scored: ScoredAttention, settings: AnalysisSettings, most: int = N_SIMULATIONS) -> Floats:
    """Soft scores of simulated studies of the same places: (simulations, prompts)."""
    rng = np.random.default_rng([settings.seed, len(scored.sizes), 1])
    repetitions = int(np.clip(MAX_DRAWN // max(1, scored.sizes.sum()), 20, most))
    levelled = scored.attention / levels(scored)[scored.prompts]
    return np.stack([scores_of(exchanged(levelled, scored.places, rng), scored.sizes) for _ in range(repetitions)])


def exchanged(attention: Floats, places: Codes, rng: np.random.Generator) -> Floats:
    """Attention (positions,) dealt anew among the positions of each place."""
    dealt = np.empty_like(attention)
    dealt[np.argsort(places, kind="stable")] = attention[np.lexsort((rng.random(len(places)), places))]
    return dealt


def levels(scored: ScoredAttention, n_steps: int = 50) -> Floats:
    """How much attention a prompt's positions get beside those of other prompts at the same places: (prompts,).

    The fit of attention = level of the prompt x mean of the place that keeps the sums of both (iterative proportional
    fitting).
    """
    prompts, places, attention = scored.prompts, scored.places, scored.attention
    sums, sums_of_places = np.bincount(prompts, attention), np.bincount(places, attention)
    level = np.ones(len(scored.sizes))
    for _ in range(n_steps):
        expected = np.bincount(places, level[prompts])
        mean = sums_of_places / np.where(expected > 0, expected, 1)
        level = sums / np.bincount(prompts, mean[places])
    return level


def length_answers(scores: pd.DataFrame, drawn: Floats, settings: AnalysisSettings) -> list[SinkAnswer]:
    """Spearman with the number of positions: of the soft score, of the score under the null (mean and interval over
    simulated studies), and of what the score is beyond its mean under the null.
    """
    n = scores["n_positions"].to_numpy(dtype=np.float64)
    groups = scores["group"].to_numpy()
    observed, beyond = (
        correlate(n, values.to_numpy(), groups, "spearman", settings)
        for values in (scores[MEASURE], scores[MEASURE] - scores["expected"])
    )
    expected = Estimate(len(n), null_reason=observed.null_reason)
    if observed.value is not None:
        expected = _by_place(n, drawn, settings)
    return [
        SinkAnswer(quantity=name, measure=MEASURE, n=e.n, **e.row())
        for name, e in ((OBSERVED, observed), (EXPECTED, expected), (BEYOND, beyond))
    ]


def _by_place(sizes: Floats, drawn: Floats, settings: AnalysisSettings) -> Estimate:
    ranks = pd.DataFrame(drawn).rank(axis=1).T
    coefficients = ranks.corrwith(pd.Series(sizes).rank()).dropna().to_numpy(dtype=np.float64)
    if not len(coefficients) or np.ptp(coefficients) == 0:
        return Estimate(len(sizes), null_reason="the score does not vary in simulated studies")
    low, high = np.quantile(coefficients, settings.tails)
    return Estimate(len(sizes), float(coefficients.mean()), float(low), float(high))
