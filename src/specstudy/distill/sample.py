"""The teacher's side of distillation: batches of sampled answers with their top probabilities, in resumable shards."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from specstudy.models.cache import preallocated_cache

TOP_TEACHER_IDS = 64
NUCLEUS_CANDIDATES = 256


@dataclass(frozen=True)
class SamplingPlan:
    """Which answers are drawn, and how.

    Every fourth batch is at temperature 1 without a nucleus, so that the draft also sees rarer text. Of prompts over
    `long_prompt_tokens` only every third is used: they cost most and teach no more.
    """

    n_prompts: int = 14_400
    prompts_per_batch: int = 24
    answers_per_prompt: int = 2
    max_new_tokens: int = 176
    temperature: float = 0.7
    top_p: float = 0.9
    wide_every: int = 4
    long_prompt_tokens: int = 200
    seed: int = 0

    def warp_of_batch(self, index: int) -> tuple[float, float]:
        """(temperature, top_p) of batch `index`."""
        return (1.0, 1.0) if index % self.wide_every == self.wide_every - 1 else (self.temperature, self.top_p)


def prompt_batches(lengths: Sequence[int], plan: SamplingPlan) -> list[list[int]]:
    """Indices of prompts, batch by batch: like lengths together, so that little is padded, and any number of first
    batches a fair sample of all."""
    used = [i for i, length in enumerate(lengths) if length <= plan.long_prompt_tokens or i % 3 == 0]
    block = 40 * plan.prompts_per_batch
    batches = []
    for start in range(0, len(used), block):
        by_length = sorted(used[start : start + block], key=lambda i: (lengths[i], i))
        groups = [by_length[i : i + plan.prompts_per_batch] for i in range(0, len(by_length), plan.prompts_per_batch)]
        random.Random(start).shuffle(groups)
        batches += groups
    return batches


@dataclass(frozen=True)
class Answers:
    """B answers: their prompts, sampled ids [B, T] of which `lengths` [B] count, and the teacher's top ids and
    log-probabilities at temperature 1 [B, T, K]."""

    prompts: list[Tensor]
    ids: Tensor
    lengths: Tensor
    top_ids: Tensor
    top_logprobs: Tensor


@torch.inference_mode()
def sample_answers(
    teacher: nn.Module, prompts: Sequence[Tensor], plan: SamplingPlan, index: int, eos_ids: Sequence[int]
) -> Answers:
    """Batch `index`: answers of the teacher to token sequences `prompts`. Depends on the plan and index alone."""
    generator = torch.Generator().manual_seed(plan.seed + index)
    temperature, top_p = plan.warp_of_batch(index)
    feed, mask, positions = _left_padded(prompts, plan.max_new_tokens)
    width = feed.shape[1]
    cache = preallocated_cache(teacher.config)
    finished = torch.zeros(len(prompts) * plan.answers_per_prompt, dtype=torch.bool)
    lengths = torch.zeros_like(finished, dtype=torch.long)
    ids, top_ids, top_logprobs = [], [], []
    for step in range(plan.max_new_tokens):
        output = teacher(
            input_ids=feed,
            attention_mask=mask[:, : width + step],
            position_ids=positions,
            cache=cache,
            logits_to_keep=1,
        )
        logits = output.logits[:, -1].float()
        if step == 0:
            # The answers of a prompt share its prefill.
            cache.batch_repeat_interleave(plan.answers_per_prompt)
            logits, mask, positions = (
                t.repeat_interleave(plan.answers_per_prompt, dim=0) for t in (logits, mask, positions)
            )
        best_logits, best_ids = logits.topk(TOP_TEACHER_IDS, dim=-1)
        token = _draw(logits, temperature, top_p, generator)
        ids.append(token)
        top_ids.append(best_ids)
        top_logprobs.append(best_logits - logits.logsumexp(-1, keepdim=True))
        lengths += (~finished).long()
        finished |= torch.isin(token, torch.tensor(list(eos_ids)))
        if bool(finished.all()):
            break
        feed, positions = token[:, None], positions[:, -1:] + 1
    return Answers(
        [p for p in prompts for _ in range(plan.answers_per_prompt)],
        torch.stack(ids, 1),
        lengths,
        torch.stack(top_ids, 1),
        torch.stack(top_logprobs, 1),
    )


def _left_padded(prompts: Sequence[Tensor], n_new: int) -> tuple[Tensor, Tensor, Tensor]:
    """(ids [B, S], attention mask [B, S + n_new], positions [B, S])."""
    width = max(len(p) for p in prompts)
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    mask = torch.zeros(len(prompts), width + n_new, dtype=torch.long)
    mask[:, width:] = 1
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = prompt
        mask[row, width - len(prompt) : width] = 1
    return ids, mask, (mask[:, :width].cumsum(-1) - 1).clamp(min=0)


def _draw(logits: Tensor, temperature: float, top_p: float, generator: torch.Generator) -> Tensor:
    """Ids [B] from logits [B, V] by inverse CDF, after temperature and a nucleus searched among the likeliest ids."""
    best, ids = logits.topk(NUCLEUS_CANDIDATES, dim=-1) if top_p < 1.0 else (logits, None)
    probabilities = torch.softmax(best / temperature, dim=-1)
    cumulative = probabilities.cumsum(-1)
    if ids is not None:
        cumulative = (probabilities * (cumulative - probabilities < top_p)).cumsum(-1)
    target = torch.rand(len(logits), 1, generator=generator) * cumulative[:, -1:]
    drawn = (cumulative <= target).sum(-1, keepdim=True).clamp(max=cumulative.shape[-1] - 1)
    return (drawn if ids is None else ids.gather(-1, drawn))[:, 0]


def write_shard(path: Path, answers: Answers) -> int:
    """Write a batch end to end, whole or not at all; returns the number of answer tokens in it.

    `tokens` holds prompt and answer after one another, `top_ids` and `top_logprobs` a row for each answer token.
    """
    tokens, top_ids, top_logprobs = [], [], []
    for row, prompt in enumerate(answers.prompts):
        length = int(answers.lengths[row])
        tokens.append(torch.cat([prompt, answers.ids[row, :length]]))
        top_ids.append(answers.top_ids[row, :length])
        top_logprobs.append(answers.top_logprobs[row, :length])
    tensors = {
        "tokens": torch.cat(tokens).to(torch.int32),
        "prompt_lengths": torch.tensor([len(p) for p in answers.prompts]),
        "answer_lengths": answers.lengths.clone(),
        "top_ids": torch.cat(top_ids).to(torch.int32),
        "top_logprobs": torch.cat(top_logprobs).to(torch.float16),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    save_file(tensors, str(temporary))
    temporary.replace(path)
    return len(tensors["top_ids"])
