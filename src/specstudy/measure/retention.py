"""What dropping keys from the cache costs: the prompt is read whole, then the answer is written over fewer keys of it.

Each model is teacher-forced over the verifier's own answers, once with its whole cache and once for each way to drop.
Keys keep their rotary place. They are hidden by a mask instead of taken out, which gives the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specstudy.measure import sampling
from specstudy.measure.decode import GenerationSettings, complete_warp, generate_rows
from specstudy.measure.finite import not_finite_error
from specstudy.measure.sinks import BLOCK_TOKENS, answer_sums
from specstudy.models.cache import CachedModel
from specstudy.models.load import Pair
from specstudy.models.without_position import without_positions
from specstudy.prompts.prompt import RenderedPrompt
from specstudy.records import RetentionRun

N_FIRST = 4
"""Keys kept beside the last ones; four are a sink's worth (Xiao et al. 2024)."""
ALL = "all"


@dataclass(frozen=True)
class Retention:
    """Which keys of a prompt are kept: `dropped` are positions, None where the budget allows no such choice."""

    policy: str
    budget: float
    n_kept: int
    dropped: tuple[int, ...] | None
    null_reason: str | None = None


def retentions(n_prompt: int, budgets: Sequence[float], rng: np.random.Generator) -> list[Retention]:
    """What is kept of a prompt: everything; then for each budget, a share of its tokens, as many keys in three ways.

    `first_and_last`: the first 4 and the last ones; `last`: the last ones alone; `random_and_last`: 4 drawn from those
    that `first_and_last` drops, and the last ones.
    """
    order = rng.permutation(np.arange(N_FIRST, n_prompt)).tolist()  # the same at every budget
    found = [Retention(ALL, 1.0, n_prompt, ())]
    for budget in budgets:
        n_kept = round(budget * n_prompt)
        n_last = n_kept - N_FIRST
        reason = _why_not(n_prompt, n_kept)
        drawn = [position for position in order if position < n_prompt - n_last][:N_FIRST]
        for policy, kept in (("first_and_last", range(N_FIRST)), ("last", ()), ("random_and_last", drawn)):
            end = n_prompt - (n_kept if policy == "last" else n_last)
            dropped = None if reason else tuple(position for position in range(end) if position not in kept)
            found.append(Retention(policy, budget, n_kept, dropped, reason))
    return found


def _why_not(n_prompt: int, n_kept: int) -> str | None:
    if n_kept <= N_FIRST:
        return f"{n_kept} of {n_prompt} prompt tokens are kept: none beside the first {N_FIRST}"
    if n_prompt - n_kept < N_FIRST:
        return f"{n_prompt - n_kept} of {n_prompt} prompt tokens are dropped: too few to draw {N_FIRST} from"
    return None


@dataclass(frozen=True)
class Whole:
    """A model over an answer of T tokens to a prompt of P, with its whole cache: the logits [T, vocabulary] before each
    token (float32, on the device), and the attention [P] that a generating query pays to each prompt position, mean
    over layers, heads and queries."""

    cached: CachedModel
    logits: Tensor
    attention: NDArray[np.float64]


@dataclass(frozen=True)
class Texts:
    """The verifier's answer to a prompt, as ids."""

    prompt_ids: list[int]
    answer_ids: list[int]

    @property
    def fed_ids(self) -> list[int]:
        """What generates the answer: token t comes from the query at P - 1 + t."""
        return [self.prompt_ids[-1], *self.answer_ids[:-1]]

    @property
    def first_query(self) -> int:
        """The first query behind the prefill, which ends before the prompt's last token."""
        return len(self.prompt_ids) - 1


@torch.inference_mode()
def measure_retention(
    pair: Pair,
    rendered: RenderedPrompt,
    settings: GenerationSettings,
    budgets: Sequence[float],
    rngs: Sequence[np.random.Generator],
    drawing: np.random.Generator,
) -> dict[str, list[object]]:
    """`retention_runs` of the verifier's answers to a prompt, one for each of `rngs`; `drawing` draws what is kept at
    random. The answers are those of the decode stage, if the generators are. Raises UserError for a model that takes
    no mask. Holds the logits of both models over one answer: 4 bytes times its tokens times the vocabulary, twice."""
    answers = generate_rows(pair.verifier, rendered.token_ids, settings, rngs)
    kept = retentions(len(rendered.positions), budgets, drawing)
    return {
        "retention_runs": [
            row
            for repetition, answer in enumerate(answers)
            for row in _rows(pair, rendered, settings, kept, repetition, Texts(rendered.token_ids, answer.token_ids))
        ]
    }


def _rows(
    pair: Pair,
    rendered: RenderedPrompt,
    settings: GenerationSettings,
    kept: Sequence[Retention],
    repetition: int,
    texts: Texts,
) -> Iterator[RetentionRun]:
    wholes = {role: _whole(CachedModel(getattr(pair, role)), texts) for role in ("draft", "verifier")}
    for role, whole in wholes.items():
        for retention in kept:
            costs = _no_costs() if retention.dropped is None else _costs(wholes, role, retention.dropped, texts, settings)
            yield RetentionRun(
                **rendered.keys,
                repetition=repetition,
                model=role,
                policy=retention.policy,
                budget=retention.budget,
                n_tokens=len(texts.answer_ids),
                n_kept=retention.n_kept,
                n_dropped=len(rendered.positions) - retention.n_kept,
                **costs,
                null_reason=retention.null_reason,
            )


def _whole(cached: CachedModel, texts: Texts) -> Whole:
    cached.prefill(torch.tensor(texts.prompt_ids[:-1], dtype=torch.long, device=cached.model.device))
    logits = torch.cat([*_logits(cached, texts)])
    sums = answer_sums(cached, texts.prompt_ids[:-1], texts.fed_ids)
    received: NDArray[np.float64] = sums.column_sums.double().numpy().mean((0, 1))[: len(texts.prompt_ids)]
    return Whole(cached, logits, received / len(texts.fed_ids))


def _logits(cached: CachedModel, texts: Texts) -> Iterator[Tensor]:
    """Logits [at most BLOCK_TOKENS, vocabulary] before the answer's tokens, block by block; `cached` holds the prompt
    but for its last token, and may hold more."""
    cached.rollback(texts.first_query)
    for block in torch.tensor(texts.fed_ids, device=cached.model.device).split(BLOCK_TOKENS):
        logits = cached.forward(block, keep=len(block))
        if not bool(logits.amax(-1).isfinite().all()):
            raise not_finite_error(cached.model, torch.tensor([*texts.prompt_ids, *texts.answer_ids[:-1]]))
        yield logits


def _no_costs() -> dict[str, None]:
    names = ("mean_expected_accept", "mean_nll_bits", "mean_entropy_bits", "mean_kl_bits", "attention_lost")
    return dict.fromkeys(names)


def _costs(
    wholes: dict[str, Whole], role: str, dropped: Sequence[int], texts: Texts, settings: GenerationSettings
) -> dict[str, float]:
    """The measures of the model of this role without the `dropped` keys, the other model whole."""
    whole = wholes[role]
    if dropped:
        with without_positions(whole.cached.model.module, dropped, texts.first_query):
            sums = _sums(wholes, role, _logits(whole.cached, texts), texts, settings)
    else:
        sums = _sums(wholes, role, whole.logits.split(BLOCK_TOKENS), texts, settings)
    means = {name: total / len(texts.answer_ids) for name, total in sums.items()}
    return {**means, "attention_lost": float(whole.attention[[*dropped]].sum())}


def _sums(
    wholes: dict[str, Whole],
    role: str,
    blocks: Iterator[Tensor] | Sequence[Tensor],
    texts: Texts,
    settings: GenerationSettings,
) -> dict[str, float]:
    """Sums over the answer's tokens; `blocks`: logits of the model of this role, which stand in for its whole ones."""
    totals: dict[str, list[float]] = {}
    start = 0
    for logits in blocks:
        rows = slice(start, start + len(logits))
        start = rows.stop
        p, q = (logits if name == role else wholes[name].logits[rows] for name in ("verifier", "draft"))
        answer = torch.tensor(texts.answer_ids[rows], device=logits.device)
        raw = sampling.raw_statistics(logits)
        found = {
            "mean_expected_accept": expected_acceptance(p, q, settings),
            "mean_nll_bits": (raw.log_normalizer - logits.gather(-1, answer[:, None])[:, 0]) / math.log(2),
            "mean_entropy_bits": raw.entropy_bits,
            "mean_kl_bits": divergence_bits(wholes[role].logits[rows], logits),
        }
        for name, values in found.items():
            totals.setdefault(name, []).extend(values.tolist())
    return {name: math.fsum(values) for name, values in totals.items()}


def expected_acceptance(p_logits: Tensor, q_logits: Tensor, settings: GenerationSettings) -> Tensor:
    """sum_x min(p(x), q(x)) [R] of the verifier's and the draft's logits [R, V], both warped."""
    p, q = complete_warp(p_logits, settings.warp), complete_warp(q_logits, settings.draft_warp)
    return sampling.expected_acceptance(p.probabilities, q.dense(q_logits.shape[-1]).gather(-1, p.ids))


def divergence_bits(p_logits: Tensor, q_logits: Tensor) -> Tensor:
    """Kullback-Leibler divergence [R] in bits of softmax(p) from softmax(q), float32 logits [R, V]: what it costs to
    take q for p. An id of probability 0 under p (a logit of -inf) adds nothing."""
    p, q = p_logits.log_softmax(-1), q_logits.log_softmax(-1)
    terms = torch.where(p.isneginf(), 0.0, p.exp() * (p - q))
    return terms.sum(-1).clamp(min=0.0) / math.log(2)
