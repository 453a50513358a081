"""Overlap with the token before, balance of the load, accepted against rejected tokens, and what entropy goes with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Rows
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specstudy import routing_formulas as formulas
from specstudy.analysis.bootstrap import AnalysisSettings, Codes, Estimate, Floats
from specstudy.analysis.correlation import correlate
from specstudy.analysis.join import Tables, frame_of, numbers, rows_of
from specstudy.analysis.means import mean, quotient
from specstudy.analysis.routing.resample import over_prompts, summed_by_prompt
from specstudy.analysis.routing.sequences import Layers, Sequence, prompt_groups, prompt_ids
from specstudy.analysis.within import coefficients_within
from specstudy.records import RoutingMeasure


@dataclass(frozen=True)
class TokenTraits:
    """Per token of a sequence, mean over layers, float64 [T]; NaN where the first token has no token before it."""

    gate_entropy_bits: Floats
    overlap: Floats
    new_experts: Floats


def traits_of(sequence: Sequence) -> TokenTraits:
    """`overlap`: share of the experts that the token before used too; `new_experts`: those that no earlier one used."""
    used = sequence.used
    overlap, new = np.full(len(used), np.nan), np.full(len(used), np.nan)
    overlap[1:] = formulas.overlap_with_previous(used).mean(1)
    before = np.logical_or.accumulate(used, axis=0)
    new[1:] = (used[1:] & ~before[:-1]).sum(-1).mean(1)
    return TokenTraits(sequence.gate_entropy_bits.mean(1), overlap, new)


def _row(measure: str, layer: int | None, found: Estimate) -> RoutingMeasure:
    return RoutingMeasure(
        measure=measure,
        layer=layer,
        n=found.n,
        **found.row(),
    )


def layer_measures(
    tables: Tables, sequences: Rows[Sequence], layers: Layers, settings: AnalysisSettings
) -> Iterator[RoutingMeasure]:
    """Overlap and its parts, balance, gate entropy: a row a layer, and one for all layers together (their mean)."""
    groups, n_experts = prompt_groups(tables), layers.n_experts
    probability = _probability_sums(tables, layers)
    # Per layer and prompt: how often each expert was on, then tokens, pairs, summed overlap, summed gate entropy.
    by_layer = []
    for place in range(len(layers.indices)):
        rows = []
        for s in sequences:
            used = s.used[:, place]
            overlap = formulas.overlap_with_previous(used).sum()
            totals = [len(used), len(used) - 1, overlap, s.gate_entropy_bits[:, place].sum()]
            rows.append(np.concatenate([used.sum(0), totals]).astype(np.float64))
        sums = summed_by_prompt([s.prompt for s in sequences], rows, len(groups))
        by_layer.append(np.concatenate([sums, probability[:, place]], axis=1))
    n = n_experts

    def popularity(t: Floats) -> Floats:
        return np.asarray(quotient(t[:, :n], t[:, n : n + 1]))

    def overlap_measured(t: Floats) -> Floats:
        return quotient(t[:, n + 2], t[:, n + 1])

    measures: dict[str, Callable[[Floats], Floats]] = {
        "overlap_with_previous": overlap_measured,
        "overlap_by_popularity": lambda t: formulas.overlap_by_popularity(popularity(t)),
        "overlap_temporal": lambda t: overlap_measured(t) - formulas.overlap_by_popularity(popularity(t)),
        "load_variation": lambda t: formulas.load_variation(popularity(t)),
        "switch_balance": lambda t: formulas.switch_balance(
            popularity(t) / layers.n_chosen, quotient(t[:, n + 4 :], t[:, n : n + 1])
        ),
        "gate_entropy_bits": lambda t: quotient(t[:, n + 3], t[:, n]),
    }
    width = by_layer[0].shape[1]
    for name, function in measures.items():

        def over_layers(t: Floats, function: Callable[[Floats], Floats] = function) -> Floats:
            pieces = [function(t[:, i * width : (i + 1) * width]) for i in range(len(by_layer))]
            return np.asarray(np.mean(pieces, axis=0))

        yield _row(name, None, over_prompts(np.concatenate(by_layer, axis=1), over_layers, settings, groups))
        for layer, sums in zip(layers.indices, by_layer, strict=True):
            yield _row(name, layer, over_prompts(sums, function, settings, groups))


def _probability_sums(tables: Tables, layers: Layers) -> Floats:
    """Summed router probabilities of the answers' tokens [P, L, N]."""
    frame = frame_of(tables, "routing_layers")
    place = {prompt_id: number for number, prompt_id in enumerate(prompt_ids(tables))}
    sums = np.zeros((len(place), len(layers.indices), layers.n_experts))
    for row in rows_of(frame[(frame["source"] == "decode").to_numpy(dtype=bool)]):
        where = place[str(row.prompt_id)], layers.indices.index(int(row.layer))
        sums[where] += row.n_tokens * np.asarray(row.mean_probability, dtype=np.float64)
    return sums


def outcome_measures(tables: Tables, passes: Rows[Sequence], settings: AnalysisSettings) -> Iterator[RoutingMeasure]:
    """Accepted minus rejected draft tokens in pooled standard deviations (Cohen's d), traits as means over layers."""
    groups = prompt_groups(tables)
    for trait in ("gate_entropy_bits", "overlap", "new_experts"):
        rows, prompts = [], []
        for s in passes:
            values = getattr(traits_of(s), trait)
            members = [[o == outcome for o in s.outcomes] for outcome in ("accepted", "rejected")]
            parts = [values[np.array(own)] for own in members]
            rows.append(np.array([f for v in parts for f in (len(v), v.sum(), (v**2).sum())], dtype=np.float64))
            prompts.append(s.prompt)
        if rows:
            found = over_prompts(summed_by_prompt(prompts, rows, len(groups)), _cohens_d, settings, groups)
        else:
            found = Estimate(0, null_reason="no verifier pass was watched")
        yield _row(f"accepted_minus_rejected_{trait}", None, found)


def _cohens_d(t: Floats) -> Floats:
    """From n, sum and sum of squares of two groups, [S, 6] -> [S]."""
    n_a, sum_a, squares_a, n_b, sum_b, squares_b = t.T
    mean_a, mean_b = quotient(sum_a, n_a), quotient(sum_b, n_b)
    within = squares_a - n_a * mean_a**2 + squares_b - n_b * mean_b**2
    enough = (n_a > 1) & (n_b > 1) & (within > 1e-12 * (squares_a + squares_b))
    deviation = np.sqrt(np.where(enough, within / np.maximum(n_a + n_b - 2, 1), np.nan))
    return np.asarray((mean_a - mean_b) / deviation)


def entropy_measures(
    tables: Tables, sequences: Rows[Sequence], prompts: pd.DataFrame, settings: AnalysisSettings
) -> Iterator[RoutingMeasure]:
    """Gate entropy and overlap against the entropy of the next token (rank correlation within each answer, its mean),
    and their means over answers against context health over prompts (rank correlation)."""
    decoded = frame_of(tables, "decode_tokens")
    keys = zip(decoded["prompt_id"], decoded["repetition"], decoded["step"], strict=True)
    entropy = dict(zip(keys, numbers(decoded["entropy_bits"]), strict=True))
    ids, groups = prompt_ids(tables), prompt_groups(tables)
    health = prompts.reindex(ids)["context_health_soft"].to_numpy(dtype=np.float64)
    of_prompt = np.array([s.prompt for s in sequences], dtype=np.intp)
    answers: Codes = np.repeat(np.arange(len(sequences), dtype=np.intp), [len(s.steps) for s in sequences])
    bits = [entropy.get((ids[s.prompt], s.repetition, step), np.nan) for s in sequences for step in s.steps.tolist()]
    for trait in ("gate_entropy_bits", "overlap"):
        values = np.concatenate([getattr(traits_of(s), trait) for s in sequences])
        within = coefficients_within(values, np.array(bits), answers, len(sequences), "spearman")
        found = mean(_by_prompt(within, of_prompt, len(ids)), settings, groups=groups)
        yield _row(f"{trait}_with_token_entropy", None, found)
        means = numbers(pd.Series(values).groupby(answers).mean())
        found = correlate(_by_prompt(means, of_prompt, len(ids)), health, groups, "spearman", settings)
        yield _row(f"{trait}_with_context_health", None, found)


def _by_prompt(of_answers: Floats, prompts: Codes, n_prompts: int) -> Floats:
    """Mean over each prompt's answers that have a value: (answers,) -> (prompts,), NaN where none has."""
    return numbers(pd.Series(of_answers).groupby(prompts).mean().reindex(range(n_prompts)))
