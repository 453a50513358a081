"""From shards to training batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

NOT_IN_HEAD = -1
HELD_OUT_EVERY = 40


@dataclass(frozen=True)
class Example:
    """One prompt and answer [S], and per answer token the teacher's top ids and log-probabilities [A, K]."""

    tokens: Tensor
    prompt_length: int
    top_ids: Tensor
    top_logprobs: Tensor

    @property
    def n_answer_tokens(self) -> int:
        return len(self.top_ids)


def read_shards(directory: Path) -> tuple[list[Example], list[Example]]:
    """(training examples, held-out examples); whole batches are held out, so no prompt is on both sides."""
    training: list[Example] = []
    held_out: list[Example] = []
    for path in sorted(directory.glob("shard-*.safetensors")):
        place = int(path.stem.removeprefix("shard-")) % HELD_OUT_EVERY
        # Neighbours in the order of batches, one of them at temperature 1.
        (held_out if place in (3, 4) else training).extend(unpack(load_file(str(path))))
    return training, held_out


def unpack(shard: dict[str, Tensor]) -> list[Example]:
    """The examples of one shard."""
    found, token, row = [], 0, 0
    for n_prompt, n_answer in zip(shard["prompt_lengths"].tolist(), shard["answer_lengths"].tolist(), strict=True):
        found.append(
            Example(
                shard["tokens"][token : token + n_prompt + n_answer].long(),
                n_prompt,
                shard["top_ids"][row : row + n_answer],
                shard["top_logprobs"][row : row + n_answer],
            )
        )
        token, row = token + n_prompt + n_answer, row + n_answer
    return found


def frequent_ids(examples: Sequence[Example], size: int, vocabulary: int, always: Sequence[int]) -> Tensor:
    """The `size` ids with most teacher probability over the answers, ascending; `always` are among them."""
    mass = torch.zeros(vocabulary, dtype=torch.float64)
    for example in examples:
        mass.index_add_(0, example.top_ids.long().flatten(), example.top_logprobs.double().exp().flatten())
    mass[list(always)] = math.inf
    return mass.topk(size).indices.sort().values


def head_positions(head_ids: Tensor, vocabulary: int) -> Tensor:
    """Place of each id in the head [V], or NOT_IN_HEAD."""
    positions = torch.full((vocabulary,), NOT_IN_HEAD)
    positions[head_ids] = torch.arange(len(head_ids))
    return positions


@dataclass(frozen=True)
class Batch:
    """Right-padded ids [B, S], the flat positions that predict answer tokens [N], and for these the teacher's top ids
    as places in the head and their log-probabilities [N, K]."""

    ids: Tensor
    wanted: Tensor
    head_index: Tensor
    logprobs: Tensor


def collate(examples: Sequence[Example], positions: Tensor) -> Batch:
    """One padded batch; `positions` from `head_positions`."""
    width = max(len(e.tokens) for e in examples)
    ids = torch.zeros(len(examples), width, dtype=torch.long)
    wanted = []
    for row, example in enumerate(examples):
        ids[row, : len(example.tokens)] = example.tokens
        wanted.append(row * width + torch.arange(example.prompt_length - 1, len(example.tokens) - 1))
    return Batch(
        ids,
        torch.cat(wanted),
        positions[torch.cat([e.top_ids for e in examples]).long()],
        torch.cat([e.top_logprobs for e in examples]).float(),
    )


def epoch_batches(examples: Sequence[Example], size: int, seed: int, epoch: int) -> Iterator[list[Example]]:
    """Batches of like length in an order that depends on (seed, epoch) alone."""
    generator = torch.Generator().manual_seed(1000 * seed + epoch)
    order = torch.randperm(len(examples), generator=generator).tolist()
    groups = []
    for start in range(0, len(order), 32 * size):
        by_length = sorted(order[start : start + 32 * size], key=lambda i: len(examples[i].tokens))
        groups += [by_length[i : i + size] for i in range(0, len(by_length), size)]
    for group in torch.randperm(len(groups), generator=generator).tolist():
        yield [examples[i] for i in groups[group]]
