"""The teacher's side of distillation: batches of sampled answers with their top probabilities, in resumable shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from specstudy.models.cache import roomy_cache

TOP_TEACHER_IDS = 64


@dataclass(frozen=True)
class SamplingPlan:
    """How the verifier's answers are drawn: every fourth batch at temperature 1, so that the draft also sees rarer text."""

    batch_size: int = 48
    answers_per_prompt: int = 2
    max_new_tokens: int = 128
    temperature: float = 0.7
    top_p: float = 0.9
    wide_every: int = 4

    def warp_of_batch(self, index: int) -> tuple[float, float]:
        """(temperature, top_p) of batch `index`."""
        return (1.0, 1.0) if index % self.wide_every == self.wide_every - 1 else (self.temperature, self.top_p)


@dataclass
class Batch:
    """Left-padded prompts [B, S] and what the verifier answered [B, T], with its top probabilities [B, T, K]."""

    prompts: list[Tensor]
    answers: Tensor
    answer_lengths: Tensor
    top_ids: Tensor
    top_logprobs: Tensor


def _draw(logits: Tensor, temperature: float, top_p: float, generator: torch.Generator) -> Tensor:
    """Token ids [B] from logits [B, V], drawn after temperature and nucleus by inverse CDF."""
    top_logits, ids = logits.topk(256, dim=-1) if top_p < 1.0 else (logits, None)
    probabilities = torch.softmax(top_logits / temperature, dim=-1)
    cumulative = probabilities.cumsum(-1)
    if ids is not None:
        cumulative = (probabilities * (cumulative - probabilities < top_p)).cumsum(-1)
    uniforms = torch.rand(len(logits), 1, generator=generator) * cumulative[:, -1:]
    drawn = (cumulative <= uniforms).sum(-1, keepdim=True).clamp(max=cumulative.shape[-1] - 1)
    return (drawn if ids is None else ids.gather(-1, drawn))[:, 0]


@torch.inference_mode()
def sample_batch(
    model: torch.nn.Module,
    prompts: Sequence[Tensor],
    plan: SamplingPlan,
    index: int,
    eos_ids: Sequence[int],
    generator: torch.Generator,
) -> Batch:
    """Answers of the verifier to token sequences `prompts`, with log-probabilities (temperature 1) of its top ids."""
    temperature, top_p = plan.warp_of_batch(index)
    width = max(len(p) for p in prompts)
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    mask = torch.zeros(len(prompts), width + plan.max_new_tokens, dtype=torch.long)
    mask[:, width:] = 1
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = prompt
        mask[row, width - len(prompt) : width] = 1
    positions = (mask[:, :width].cumsum(-1) - 1).clamp(min=0)
    cache = roomy_cache(model.config)
    n_answers = len(prompts) * plan.answers_per_prompt
    finished = torch.zeros(n_answers, dtype=torch.bool)
    lengths = torch.zeros(n_answers, dtype=torch.long)
    answers, all_ids, all_logprobs = [], [], []
    feed = ids
    for step in range(plan.max_new_tokens):
        output = model(
            input_ids=feed,
            attention_mask=mask[:, : width + step],
            position_ids=positions,
            cache=cache,
            logits_to_keep=1,
        )
        logits = output.logits[:, -1].float()
        if step == 0:
            cache.batch_repeat_interleave(plan.answers_per_prompt)
            logits, mask, positions = (
                t.repeat_interleave(plan.answers_per_prompt, dim=0) for t in (logits, mask, positions)
            )
        top_logits, top_ids = logits.topk(TOP_TEACHER_IDS, dim=-1)
        logprobs = top_logits - logits.logsumexp(-1, keepdim=True)
        token = _draw(logits, temperature, top_p, generator)
        lengths += (~finished).long()
        finished |= torch.isin(token, torch.tensor(list(eos_ids)))
        answers.append(token)
        all_ids.append(top_ids)
        all_logprobs.append(logprobs)
        if bool(finished.all()):
            break
        feed, positions = token[:, None], positions[:, -1:] + 1
    return Batch(
        [p for p in prompts for _ in range(plan.answers_per_prompt)],
        torch.stack(answers, 1),
        lengths,
        torch.stack(all_ids, 1),
        torch.stack(all_logprobs, 1),
    )


def pack(batch: Batch) -> dict[str, Tensor]:
    """Ragged form of a batch: `tokens` (prompt and answer, end to end), lengths, and a row of top ids per answer token."""
    tokens, top_ids, top_logprobs = [], [], []
    for row, prompt in enumerate(batch.prompts):
        length = int(batch.answer_lengths[row])
        tokens.append(torch.cat([prompt, batch.answers[row, :length]]))
        top_ids.append(batch.top_ids[row, :length])
        top_logprobs.append(batch.top_logprobs[row, :length])
    return {
        "tokens": torch.cat(tokens).to(torch.int32),
        "prompt_lengths": torch.tensor([len(p) for p in batch.prompts]),
        "answer_lengths": batch.answer_lengths.clone(),
        "top_ids": torch.cat(top_ids).to(torch.int32),
        "top_logprobs": torch.cat(top_logprobs).to(torch.float16),
    }


def write_shard(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write whole or not at all: a killed run leaves no half shard behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    save_file(tensors, str(temporary))
    temporary.replace(path)


def read_shards(directory: Path) -> Iterator[dict[str, Tensor]]:
    """All finished shards in order."""
    for path in sorted(directory.glob("shard-*.safetensors")):
        yield load_file(str(path))
