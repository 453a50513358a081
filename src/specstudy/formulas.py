"""Pure mathematics in NumPy: sink scores, context health, speculative-decoding theory, FLOPs. No models, no files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MIN_CONTENT_POSITIONS = 8
MAX_HEALTH = 10.0
MAX_SEVERITY = 5.0
MIN_SCALED_MAD = 1e-8
MIN_ATTENTION = 1e-8
SINK_RATE_ATTENTION = 0.3
MIN_TOKENS_FOR_SINK_RATE = 16


@dataclass(frozen=True)
class ZScores:
    """Robust z-scores per position, or None and the reason why they are not defined."""

    values: Floats | None
    null_reason: str | None


def robust_z_scores(attention: Floats, is_content: Bools) -> ZScores:
    """(ln max(x, 1e-8) - median) / (1.4826 * MAD) for attention [S]; median and MAD over content positions only.

    Not defined under 8 content positions, or where the scaled MAD is under 1e-8 (every z would be infinite or 0/0).
    """
    logs = np.log(np.maximum(np.asarray(attention, dtype=np.float64), MIN_ATTENTION))
    content = logs[is_content]
    if len(content) < MIN_CONTENT_POSITIONS:
        return ZScores(None, f"{len(content)} content positions, {MIN_CONTENT_POSITIONS} needed")
    median = np.median(content)
    scaled_mad = 1.4826 * np.median(np.abs(content - median))
    if scaled_mad < MIN_SCALED_MAD:
        return ZScores(None, "more than half of the content positions receive the same attention (MAD is 0)")
    return ZScores((logs - median) / scaled_mad, None)


def context_health(content_z: Floats, threshold: float) -> float:
    """The score of mayankpallai 2026 (part 2), 0 to 10, from the z-scores of content positions.

    10 without a sink, else clip(10 - 10 * density - min(severity, 5), 0, 10); density = sinks / content positions,
    severity = mean z of the sinks.
    """
    sinks = content_z[content_z > threshold]
    if len(sinks) == 0:
        return MAX_HEALTH
    return float(health_of_sinks(np.array(len(sinks) / len(content_z)), np.array(sinks.mean())))


def health_of_sinks(density: Floats, severity: Floats) -> Floats:
    """The same score from density and severity of the sinks of each prompt (any shape); 10 where density is 0."""
    score = np.clip(MAX_HEALTH - 10.0 * density - np.minimum(severity, MAX_SEVERITY), 0.0, MAX_HEALTH)
    return np.where(density > 0, score, MAX_HEALTH)


def context_health_soft(content_attention: Floats) -> float | None:
    """10 * (1 - Hoover index) of the attention over content positions; None under 8 of them or if they receive none.

    The Hoover index is the share of the attention that would have to move for all positions to be equal.
    """
    if len(content_attention) < MIN_CONTENT_POSITIONS or content_attention.sum() <= 0:
        return None
    return float(evenness(content_attention))


def evenness(attention: Floats) -> Floats:
    """10 * (1 - Hoover index) of attention (..., positions), which must not be all zero: (...,)."""
    excess = np.maximum(attention - attention.mean(axis=-1, keepdims=True), 0.0).sum(axis=-1)
    even: Floats = np.clip(MAX_HEALTH * (1.0 - excess / attention.sum(axis=-1)), 0.0, MAX_HEALTH)
    return even


def sink_rate(first_token_attention: Floats, n_tokens: int) -> float | None:
    """Share of heads whose mean attention to position 0 is over 0.3 (Gu et al. 2024); None under 16 tokens."""
    if n_tokens < MIN_TOKENS_FOR_SINK_RATE:
        return None
    return float((first_token_attention > SINK_RATE_ATTENTION).mean())


def expected_tokens_per_round(alpha: float, gamma: int) -> float:
    """(1 - alpha^(gamma+1)) / (1 - alpha): Leviathan et al. 2023, equation 1; gamma + 1 at alpha = 1."""
    return float(sum(alpha**i for i in range(gamma + 1)))


def alpha_of_acceptance_rate(acceptance_rate: float, gamma: int) -> float:
    """The alpha at which accepted / proposed is expected to be this (0 to 1), if every draft has gamma tokens:
    (alpha + ... + alpha^gamma) / gamma."""
    tokens = 1.0 + gamma * acceptance_rate
    return float(optimize.brentq(lambda a: expected_tokens_per_round(a, gamma) - tokens, 0.0, 1.0))


def expected_speedup(alpha: float, gamma: int, cost_ratio: float) -> float:
    """Leviathan et al. 2023, theorem 3.8: tokens per round over gamma * c + 1."""
    return expected_tokens_per_round(alpha, gamma) / (gamma * cost_ratio + 1.0)


def expected_speedup_full(
    alpha: float, gamma: int, cost_ratio: float, target_efficiency: float, overhead_steps: float
) -> float:
    """The same with real costs: a pass over gamma + 1 tokens costs 1 / target_efficiency verifier steps, and the
    round's overhead `overhead_steps` more."""
    return expected_tokens_per_round(alpha, gamma) / (gamma * cost_ratio + 1.0 / target_efficiency + overhead_steps)


def breakeven_alpha(gamma: int, cost_ratio: float) -> float | None:
    """The alpha at which the expected speedup is 1; None if even alpha = 1 does not reach it."""
    if expected_speedup(1.0, gamma, cost_ratio) < 1.0:
        return None
    return float(optimize.brentq(lambda a: expected_speedup(a, gamma, cost_ratio) - 1.0, 0.0, 1.0))


def entropy_bits(probabilities: Floats) -> float:
    """-sum p log2 p in bits; 0 * log 0 is 0."""
    kept = probabilities[probabilities > 0]
    return float(-(kept * np.log2(kept)).sum())


@dataclass(frozen=True)
class Dimensions:
    """What one token costs a decoder, as its modules run.

    `matmul_parameters`: elements of the matrices that a token is multiplied by, of experts those of the chosen and the
    shared ones. `key_value_elements`: what all layers keep of a token. `n_heads`: query heads of a layer.
    `widest_product`: elements that go into and come out of the largest product.
    """

    n_layers: int
    n_heads: int
    hidden_size: int
    output_rows: int
    matmul_parameters: int
    key_value_elements: int
    widest_product: int
    n_experts: int = 0
    n_active_experts: int = 0
    n_expert_layers: int = 0


def flops_per_token(dimensions: Dimensions) -> float:
    """2 * matmul parameters a token passes: q, k, v, o and the MLP in every layer, plus the output projection.

    Embedding look-up costs nothing; a tied output projection still counts. MoE layers count the active experts, the
    shared ones, and the router. Attention over the cache is left out, as in the usual estimate.
    """
    return 2.0 * dimensions.matmul_parameters


def distinct_trigram_share(token_ids: Sequence[int]) -> float | None:
    """Distinct runs of three tokens among all of a text [T]: 1 if none comes twice; None under three tokens."""
    trigrams = list(zip(token_ids, token_ids[1:], token_ids[2:], strict=False))
    return ratio_or_none(len(set(trigrams)), len(trigrams))


def mean_or_none(values: Sequence[float] | Floats) -> float | None:
    """Mean, or None of nothing."""
    return float(np.mean(values)) if len(values) else None


def ratio_or_none(numerator: float, denominator: float) -> float | None:
    """A rate; None if the denominator is zero."""
    return numerator / denominator if denominator else None
