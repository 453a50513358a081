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
from specstudy.measure.attention_while_writing import attention_to_text, head_records, step_columns
from specstudy.measure.finite import not_finite_error
from specstudy.measure.sampling import Warp
from specstudy.measure.teacher_forced import TeacherForced, teacher_forced
from specstudy.measure.transfer import rows_to_host
from specstudy.models import device as devices
from specstudy.models.attention_sums import AttentionSums
from specstudy.models.cache import CachedModel
from specstudy.models.device import Mark
from specstudy.models.load import LanguageModel, Pair
from specstudy.models.tokens import text_of, token_text, word_starts
from specstudy.prompts.prompt import RenderedPrompt
from specstudy.records import DecodeAttention, DecodeAttentionStep, DecodeRun, DecodeToken


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
    """A generated token and the distribution behind it; `complete` says whether its nucleus was found."""

    token_id: int
    logprob: float
    entropy_bits: float
    sampling_entropy_bits: float
    top_ids: list[int]
    top_probs: list[float]
    complete: bool = True


@dataclass(frozen=True)
class Generation:
    """An answer; `forward_s` is the time of each step's forward pass, which several answers may have shared.

    `decode_s` runs from the end of prefill until the answer's last token is there; `step_s` are its parts, from token
    to token.
    """

    steps: list[Step]
    finish_reason: str
    ttft_s: float
    decode_s: float
    forward_s: list[float]
    step_s: list[float]

    @property
    def token_ids(self) -> list[int]:
        return [step.token_id for step in self.steps]


def _step(logits: Tensor, uniforms: Tensor, warp: Warp, n_candidates: int) -> dict[str, Tensor]:
    """For each row [R] the drawn token's id and everything recorded about it, on the device."""
    raw = sampling.raw_statistics(logits)
    warped = sampling.warp(logits, warp)
    token = sampling.draw(warped.ids, warped.probabilities, uniforms)
    top_logits, top_ids = sampling.largest(logits, n_candidates)
    return {
        "token_id": token,
        "logprob": logits.gather(-1, token[:, None])[:, 0] - raw.log_normalizer,
        "entropy_bits": raw.entropy_bits,
        "sampling_entropy_bits": warped.entropy_bits(),
        "complete": warped.complete,
        "top_ids": top_ids,
        "top_probs": (top_logits - raw.log_normalizer[:, None]).exp(),
    }


def _fetched_step(
    logits: Tensor, uniforms: Tensor, warp: Warp, n_candidates: int
) -> tuple[Tensor, list[Step | None], Warp]:
    """The tokens [R] on the device, each row's step, None where its logits were not finite, and the warp with as many
    candidates as held every nucleus."""
    while True:
        found = _step(logits, uniforms, warp, n_candidates)
        steps = [_as_step(row) for row in rows_to_host(found)]
        if all(step is None or step.complete for step in steps):
            return found["token_id"], steps, warp
        warp = warp.widened()


def generate(
    model: LanguageModel,
    prompt_ids: Sequence[int],
    settings: GenerationSettings,
    rng: np.random.Generator,
    cached: CachedModel | None = None,
) -> Generation:
    """The verifier alone: one answer, `generate_rows` with one row."""
    return generate_rows(model, prompt_ids, settings, [rng], cached)[0]


@torch.inference_mode()
def generate_rows(
    model: LanguageModel,
    prompt_ids: Sequence[int],
    settings: GenerationSettings,
    rngs: Sequence[np.random.Generator],
    cached: CachedModel | None = None,
) -> list[Generation]:
    """Answers to one prompt, decoded as one batch after one prefill: a token a step for each row, drawn with uniforms
    of the row's own generator. One host synchronisation a step.

    `cached`, an empty one, is filled, for a caller that goes on with what it holds: the prompt and, of a single row,
    the answer. A row that has ended is fed on until the last one has, and what it gives then is dropped.
    """
    device = model.device
    ids = torch.tensor(list(prompt_ids), device=device)
    numbers = np.stack([rng.random(settings.max_new_tokens, dtype=np.float32) for rng in rngs], axis=1)
    uniforms = torch.from_numpy(numbers).to(device)
    cached = cached or CachedModel(model)
    started_s = devices.now_s(device)
    cached.prefill(ids[:-1])
    rows = cached if len(rngs) == 1 else cached.repeated(len(rngs))
    prefilled_s = devices.now_s(device)
    feed, warp = ids[-1:].expand(len(rngs)), settings.warp
    answers = [_Answer() for _ in rngs]
    marks: list[tuple[Mark, Mark]] = []
    for index in range(settings.max_new_tokens):
        before = devices.mark(device)
        logits = rows.forward_rows(feed)
        marks.append((before, devices.mark(device)))
        # As in the speculative loop, a nucleus that was wide once is looked for in as many candidates from then on.
        feed, steps, warp = _fetched_step(logits, uniforms[index], warp, settings.n_candidates)
        fetched_s = time.perf_counter()  # the device has finished: its result is here
        for answer, step in zip(answers, steps, strict=True):
            if step is None and not answer.ended:
                raise not_finite_error(model, torch.tensor([*prompt_ids, *answer.token_ids], device=device))
            if step and not answer.ended:
                answer.take(step, fetched_s, settings.eos_ids)
        if all(answer.ended for answer in answers):
            break
    forward_s = [before.seconds_until(after) for before, after in marks]
    return [answer.finished(started_s, prefilled_s, forward_s) for answer in answers]


@dataclass
class _Answer:
    """A row while it is generated; `taken_s` has the time at which each of its tokens was there."""

    steps: list[Step] = field(default_factory=list)
    taken_s: list[float] = field(default_factory=list)
    ended: bool = False

    @property
    def token_ids(self) -> list[int]:
        return [step.token_id for step in self.steps]

    def take(self, step: Step, now_s: float, eos_ids: tuple[int, ...]) -> None:
        self.steps.append(step)
        self.taken_s.append(now_s)
        self.ended = step.token_id in eos_ids

    def finished(self, started_s: float, prefilled_s: float, forward_s: list[float]) -> Generation:
        return Generation(
            self.steps,
            "eos" if self.ended else "length",
            self.taken_s[0] - started_s,
            self.taken_s[-1] - prefilled_s,
            forward_s[: len(self.steps)],
            np.diff([prefilled_s, *self.taken_s]).tolist(),
        )


def _as_step(host: dict[str, list[float]]) -> Step | None:
    if any(math.isnan(value) for values in host.values() for value in values):
        return None
    return Step(
        token_id=int(host["token_id"][0]),
        logprob=host["logprob"][0],
        entropy_bits=host["entropy_bits"][0],
        sampling_entropy_bits=host["sampling_entropy_bits"][0],
        top_ids=[int(i) for i in host["top_ids"]],
        top_probs=host["top_probs"],
        complete=bool(host["complete"][0]),
    )


def attention_from_generated(sums: AttentionSums, n_prompt: int, n_answer: int) -> NDArray[np.float64]:
    """Mean attention [P] that the answer's tokens pay to each prompt position, over layers, heads and answer tokens."""
    received: NDArray[np.float64] = sums.column_sums.double().numpy().mean((0, 1))[:n_prompt]
    return received / n_answer


def measure_decode(
    pair: Pair,
    rendered: RenderedPrompt,
    settings: GenerationSettings,
    rngs: Sequence[np.random.Generator],
    attention_heads: bool = False,
) -> dict[str, list[object]]:
    """All decode records of the answers to a prompt, one for each generator: `decode_tokens`, `decode_runs`,
    `decode_attention`, `decode_attention_steps`, and `decode_attention_heads`, empty unless `attention_heads`."""
    verifier = CachedModel(pair.verifier)
    names = ("decode_tokens", "decode_runs", "decode_attention", "decode_attention_steps", "decode_attention_heads")
    records: dict[str, list[object]] = {name: [] for name in names}
    answers = generate_rows(pair.verifier, rendered.token_ids, settings, rngs, verifier)
    for repetition, generation in enumerate(answers):
        forced = teacher_forced(
            pair, rendered.token_ids, generation.token_ids, settings.warp, settings.draft_warp, verifier
        )
        sums = attention_to_text(verifier, rendered, generation.token_ids)
        assert sums.steps is not None
        attention = attention_from_generated(sums, len(rendered.positions), len(generation.steps))
        keys: dict[str, Any] = {**rendered.keys, "repetition": repetition}
        records["decode_tokens"] += _token_records(keys, pair, generation, forced)
        records["decode_runs"].append(_run_record(keys, pair, rendered, generation, forced))
        records["decode_attention"] += _attention_records(keys, rendered, attention)
        records["decode_attention_steps"] += [
            DecodeAttentionStep(**keys, step=step, **columns)
            for step, columns in enumerate(step_columns(sums.steps, rendered))
        ]
        if attention_heads:
            records["decode_attention_heads"] += head_records(keys, sums.steps)
    return records


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


def _run_record(
    keys: dict[str, Any], pair: Pair, rendered: RenderedPrompt, generation: Generation, forced: TeacherForced
) -> DecodeRun:
    mean_bits = float(np.mean([step.entropy_bits for step in generation.steps]))
    distinct = formulas.distinct_trigram_share(generation.token_ids)
    return DecodeRun(
        **keys,
        n_prompt_tokens=len(rendered.positions),
        n_tokens=len(generation.steps),
        finish_reason=generation.finish_reason,
        mean_entropy_bits=mean_bits,
        mean_entropy_norm=mean_bits / float(np.log2(pair.verifier.n_emittable)),
        mean_draft_entropy_bits=float(np.mean(forced.draft_entropy_bits)),
        mean_expected_accept=float(np.mean(forced.expected_accept)),
        distinct_trigram_share=distinct,
        ttft_s=generation.ttft_s,
        decode_s=generation.decode_s,
        tokens_per_s=len(generation.steps) / generation.decode_s,
        text=text_of(pair.tokenizer, generation.token_ids),
        null_reason="under three tokens hold no trigram" if distinct is None else None,
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
