"""Decode: the verifier's own sampling loop with the distribution behind every token; the draft on the same text."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specstudy import formulas
from specstudy.measure import sampling
from specstudy.measure.finite import not_finite
from specstudy.measure.sampling import Warp, Warped
from specstudy.measure.sinks import BLOCK_TOKENS, prefill_sums
from specstudy.models import device as devices
from specstudy.models.cache import CachedModel
from specstudy.models.load import LanguageModel, Pair
from specstudy.models.tokens import text_of, token_text, word_starts
from specstudy.prompts.prompt import RenderedPrompt
from specstudy.records import DecodeAttention, DecodeRun, DecodeToken


@dataclass(frozen=True)
class GenerationSettings:
    """How a text is generated, by either loop."""

    warp: Warp
    max_new_tokens: int
    eos_ids: tuple[int, ...]
    n_candidates: int = 5
    draft_temperature: float | None = None

    @property
    def draft_warp(self) -> Warp:
        """What the draft samples with: the verifier's warp, unless it has a temperature of its own."""
        return self.warp if self.draft_temperature is None else replace(self.warp, temperature=self.draft_temperature)


@dataclass(frozen=True)
class Step:
    """A generated token and the distribution behind it."""

    token_id: int
    logprob: float
    entropy_bits: float
    sampling_entropy_bits: float
    top_ids: list[int]
    top_probs: list[float]


@dataclass(frozen=True)
class Generation:
    """An answer; `forward_s` is the time of each step's forward pass."""

    steps: list[Step]
    finish_reason: str
    ttft_s: float
    decode_s: float
    forward_s: list[float]

    @property
    def token_ids(self) -> list[int]:
        return [step.token_id for step in self.steps]


def _step(logits: Tensor, uniform: Tensor, warp: Warp, n_candidates: int) -> tuple[Tensor, Tensor]:
    """(token id [1] on the device, everything recorded about it packed into one float32 vector)."""
    raw = sampling.raw_statistics(logits)
    warped = sampling.warp(logits, warp)
    token = sampling.draw(warped.ids, warped.probabilities, uniform)
    top_logits, top_ids = sampling.largest(logits, n_candidates)
    packed = torch.cat(
        [
            token.float(),
            logits[0, token] - raw.log_normalizer,
            raw.entropy_bits,
            warped.entropy_bits(),
            warped.complete.float(),
            top_ids[0].float(),
            (top_logits[0] - raw.log_normalizer).exp(),
        ]
    )
    return token, packed


def _fetched_step(
    logits: Tensor, uniform: Tensor, warp: Warp, n_candidates: int
) -> tuple[Tensor, list[float] | None, Warp]:
    """A step with its record on the host, None where the logits were not finite, and the warp with as many candidates
    as held the nucleus."""
    while True:
        token, packed = _step(logits, uniform, warp, n_candidates)
        values = packed.tolist()
        if any(map(math.isnan, values)):
            return token, None, warp
        if values[4]:
            return token, values, warp
        warp = warp.widened()


@torch.inference_mode()
def generate(
    model: LanguageModel,
    prompt_ids: Sequence[int],
    settings: GenerationSettings,
    rng: np.random.Generator,
    cached: CachedModel | None = None,
) -> Generation:
    """The verifier alone: one token a step, uniforms from `rng`. One host synchronisation a token.

    `cached`, an empty one, is filled, for a caller that goes on with what it holds.
    """
    device = model.device
    ids = torch.tensor(list(prompt_ids), device=device)
    uniforms = torch.from_numpy(rng.random(settings.max_new_tokens, dtype=np.float32)).to(device)
    cached = cached or CachedModel(model)
    started_s = devices.now_s(device)
    cached.prefill(ids[:-1])
    prefilled_s = first_token_s = devices.now_s(device)
    feed, warp = ids[-1:], settings.warp
    steps: list[Step] = []
    marks = []
    finish_reason = "length"
    for index in range(settings.max_new_tokens):
        before = devices.mark(device)
        logits = cached.forward(feed, keep=1)
        marks.append((before, devices.mark(device)))
        uniform = uniforms[index : index + 1]
        # As in the speculative loop, a nucleus that was wide once is looked for in as many candidates from then on.
        feed, values, warp = _fetched_step(logits, uniform, warp, settings.n_candidates)
        if values is None:
            raise not_finite(model, torch.tensor([*prompt_ids, *(step.token_id for step in steps)], device=device))
        if index == 0:
            first_token_s = time.perf_counter()  # the device has finished: its result is here
        steps.append(_unpack(values, settings.n_candidates))
        if steps[-1].token_id in settings.eos_ids:
            finish_reason = "eos"
            break
    decode_s = devices.now_s(device) - prefilled_s
    forward_s = [before.seconds_until(after) for before, after in marks]
    return Generation(steps, finish_reason, first_token_s - started_s, decode_s, forward_s)


def _unpack(values: list[float], n_candidates: int) -> Step:
    top = values[5:]
    return Step(
        token_id=int(values[0]),
        logprob=values[1],
        entropy_bits=values[2],
        sampling_entropy_bits=values[3],
        top_ids=[int(i) for i in top[:n_candidates]],
        top_probs=top[n_candidates:],
    )


@dataclass(frozen=True)
class TeacherForced:
    """The draft over the verifier's answer, token by token [T]."""

    draft_entropy_bits: list[float] = field(default_factory=list)
    draft_top_prob: list[float] = field(default_factory=list)
    draft_top_margin: list[float] = field(default_factory=list)
    expected_accept: list[float] = field(default_factory=list)


@torch.inference_mode()
def teacher_forced(
    pair: Pair,
    prompt_ids: Sequence[int],
    answer_ids: Sequence[int],
    warp: Warp,
    draft_warp: Warp | None = None,
    verifier: CachedModel | None = None,
) -> TeacherForced:
    """The draft's certainty and sum_x min(p(x), q(x)) before each answer token; both are fed the text in blocks.

    `verifier` may hold the prompt already, so that it need not be fed again.
    """
    device = pair.verifier.device
    ids = torch.tensor([*prompt_ids, *answer_ids[:-1]], device=device)
    verifier, draft = verifier or CachedModel(pair.verifier), CachedModel(pair.draft)
    first = len(prompt_ids) - 1
    for cached in (verifier, draft):
        cached.rollback(min(first, cached.length))
        cached.prefill(ids[cached.length : first])
    forced = TeacherForced()
    for start in range(first, len(ids), BLOCK_TOKENS):
        block = ids[start : start + BLOCK_TOKENS]
        p_logits = verifier.forward(block, keep=len(block))
        q_logits = draft.forward(block, keep=len(block))
        raw = sampling.raw_statistics(q_logits)
        if not bool(raw.finite.all()):
            raise not_finite(pair.draft, ids[: start + len(block)])
        p, q = complete_warp(p_logits, warp), complete_warp(q_logits, draft_warp or warp)
        first_prob, second_prob = sampling.top_two(q_logits, raw.log_normalizer)
        forced.draft_entropy_bits.extend(raw.entropy_bits.tolist())
        forced.draft_top_prob.extend(first_prob.tolist())
        forced.draft_top_margin.extend((first_prob - second_prob).tolist())
        q_there = q.dense(pair.draft.vocabulary).gather(-1, p.ids)
        forced.expected_accept.extend(sampling.expected_acceptance(p.probabilities, q_there).tolist())
    return forced


def complete_warp(logits: Tensor, warp: Warp) -> Warped:
    """Warped distributions, among as many candidates as hold every nucleus. Waits for the device."""
    warp = warp.widened()  # of many rows one is less certain
    warped = sampling.warp(logits, warp)
    while not bool(warped.complete.all()):
        warp = warp.widened()
        warped = sampling.warp(logits, warp)
    return warped


def attention_from_generated(
    model: LanguageModel, prompt_ids: Sequence[int], answer_ids: Sequence[int]
) -> NDArray[np.float64]:
    """Mean attention [P] that the answer's tokens pay to each prompt position, over layers, heads and answer tokens."""
    n_prompt = len(prompt_ids)
    sums = prefill_sums(model, [*prompt_ids, *answer_ids], window=1, first_query=n_prompt)
    received: NDArray[np.float64] = sums.column_sums.double().numpy().mean((0, 1))[:n_prompt]
    return received / len(answer_ids)


def measure_decode(
    pair: Pair, rendered: RenderedPrompt, settings: GenerationSettings, repetition: int, rng: np.random.Generator
) -> dict[str, list[object]]:
    """All decode records of one generation: `decode_tokens`, `decode_runs`, `decode_attention`."""
    verifier = CachedModel(pair.verifier)
    generation = generate(pair.verifier, rendered.token_ids, settings, rng, verifier)
    forced = teacher_forced(
        pair, rendered.token_ids, generation.token_ids, settings.warp, settings.draft_warp, verifier
    )
    attention = attention_from_generated(pair.verifier, rendered.token_ids, generation.token_ids)
    keys = {"prompt_id": rendered.prompt.prompt_id, "category": rendered.prompt.category, "repetition": repetition}
    return {
        "decode_tokens": _token_records(keys, pair, generation, forced),
        "decode_runs": [_run_record(keys, pair, rendered, generation)],
        "decode_attention": _attention_records(keys, rendered, attention),
    }


def _token_records(keys: dict[str, Any], pair: Pair, generation: Generation, forced: TeacherForced) -> list[object]:
    texts = [token_text(pair.tokenizer, step.token_id) for step in generation.steps]
    starts = word_starts(texts)
    most_bits = float(np.log2(pair.verifier.n_emittable))
    return [
        DecodeToken(
            **keys,
            step=index,
            token_id=step.token_id,
            token=texts[index],
            logprob=step.logprob,
            entropy_bits=step.entropy_bits,
            entropy_norm=step.entropy_bits / most_bits,
            sampling_entropy_bits=step.sampling_entropy_bits,
            top_ids=step.top_ids,
            top_tokens=[token_text(pair.tokenizer, i) for i in step.top_ids],
            top_probs=step.top_probs,
            is_word_start=starts[index],
            draft_entropy_bits=forced.draft_entropy_bits[index],
            draft_top_prob=forced.draft_top_prob[index],
            draft_top_margin=forced.draft_top_margin[index],
            expected_accept=forced.expected_accept[index],
        )
        for index, step in enumerate(generation.steps)
    ]


def _run_record(keys: dict[str, Any], pair: Pair, rendered: RenderedPrompt, generation: Generation) -> DecodeRun:
    mean_bits = float(np.mean([step.entropy_bits for step in generation.steps]))
    return DecodeRun(
        **keys,
        n_prompt_tokens=len(rendered.positions),
        n_tokens=len(generation.steps),
        finish_reason=generation.finish_reason,
        mean_entropy_bits=mean_bits,
        mean_entropy_norm=mean_bits / float(np.log2(pair.verifier.n_emittable)),
        ttft_s=generation.ttft_s,
        decode_s=generation.decode_s,
        tokens_per_s=len(generation.steps) / generation.decode_s,
        text=text_of(pair.tokenizer, generation.token_ids),
    )


def _attention_records(keys: dict[str, Any], rendered: RenderedPrompt, attention: NDArray[np.float64]) -> list[object]:
    content = np.array([not p.is_structural for p in rendered.positions])
    z = formulas.robust_z_scores(attention, content)
    return [
        DecodeAttention(
            **keys,
            position=index,
            attention_from_generated=float(attention[index]),
            z_generated=None if z.values is None else float(z.values[index]),
            null_reason=z.null_reason,
        )
        for index in range(len(attention))
    ]
