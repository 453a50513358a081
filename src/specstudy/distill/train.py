"""The student's side: a few of the verifier's layers, trained to give its next-token distribution (forward KL)."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

IGNORED = -1


@dataclass(frozen=True)
class TrainingPlan:
    """What is trained and how; learning rates are peaks of a warm-up and cosine schedule."""

    layers: tuple[int, ...] = (0, 29)
    head_size: int = 8192
    epochs: int = 2
    sequences_per_step: int = 16
    muon_learning_rate: float = 0.0
    adam_learning_rate: float = 1e-3
    weight_decay: float = 0.01
    warmup_steps: int = 50
    variation_weight: float = 0.0
    temperature: float = 0.7
    top_p: float = 0.9
    seed: int = 0


@dataclass(frozen=True)
class Sequence_:
    """One prompt and answer [S], and per answer token the teacher's top ids and log-probabilities [A, K]."""

    tokens: Tensor
    prompt_length: int
    top_ids: Tensor
    top_logprobs: Tensor


def unpack(shard: dict[str, Tensor]) -> list[Sequence_]:
    """The sequences of one shard."""
    found, token, row = [], 0, 0
    for prompt_length, answer_length in zip(
        shard["prompt_lengths"].tolist(), shard["answer_lengths"].tolist(), strict=True
    ):
        size = prompt_length + answer_length
        found.append(
            Sequence_(
                shard["tokens"][token : token + size].long(),
                prompt_length,
                shard["top_ids"][row : row + answer_length],
                shard["top_logprobs"][row : row + answer_length],
            )
        )
        token, row = token + size, row + answer_length
    return found


def frequent_ids(sequences: Sequence[Sequence_], size: int, vocabulary: int, always: Sequence[int]) -> Tensor:
    """The `size` ids with most teacher probability over the answers, ascending; `always` are among them."""
    mass = torch.zeros(vocabulary, dtype=torch.float64)
    for sequence in sequences:
        mass.index_add_(0, sequence.top_ids.long().flatten(), sequence.top_logprobs.double().exp().flatten())
    mass[list(always)] = math.inf
    return mass.topk(size).indices.sort().values


class Student(nn.Module):
    """Layers copied from the verifier; embedding and output head are the verifier's own and stay as they are."""

    def __init__(self, verifier: nn.Module, layers: Sequence[int], head_ids: Tensor) -> None:
        super().__init__()
        config = copy.deepcopy(verifier.config)
        config.num_hidden_layers = len(layers)
        config._attn_implementation = "sdpa"
        self.body = type(verifier.model)(config)
        for new, old in enumerate(layers):
            self.body.layers[new].load_state_dict(verifier.model.layers[old].state_dict())
        self.body.norm.load_state_dict(verifier.model.norm.state_dict())
        self.body = self.body.float()
        embedding = verifier.get_input_embeddings().weight.detach()
        self.body.embed_tokens.weight = nn.Parameter(embedding.float(), requires_grad=False)
        self.register_buffer("head", embedding[head_ids].clone(), persistent=False)

    def forward(self, ids: Tensor, wanted: Tensor) -> Tensor:
        """Logits [N, head] at the `wanted` (flat indices into [B, S]) positions of ids [B, S], right-padded."""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = self.body(input_ids=ids, use_cache=False).last_hidden_state
            hidden = hidden.flatten(0, 1).index_select(0, wanted)
            return (hidden.to(torch.bfloat16) @ self.head.T.to(torch.bfloat16)).float()

    def trained_parameters(self) -> list[tuple[str, nn.Parameter]]:
        return [(n, p) for n, p in self.body.named_parameters() if p.requires_grad]


@dataclass(frozen=True)
class StepData:
    """Padded ids [B, S], flat positions that predict answer tokens [N], teacher's top ids in the head and log-probs [N, K]."""

    ids: Tensor
    wanted: Tensor
    head_index: Tensor
    logprobs: Tensor


def collate(sequences: Sequence[Sequence_], head_position: Tensor) -> StepData:
    """Right-pad a batch. `head_position` [V] maps an id to its place in the head, or to IGNORED."""
    width = max(len(s.tokens) for s in sequences)
    ids = torch.zeros(len(sequences), width, dtype=torch.long)
    wanted = []
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence.tokens)] = sequence.tokens
        wanted.append(row * width + torch.arange(sequence.prompt_length - 1, len(sequence.tokens) - 1))
    return StepData(
        ids,
        torch.cat(wanted),
        head_position[torch.cat([s.top_ids for s in sequences]).long()],
        torch.cat([s.top_logprobs for s in sequences]).float(),
    )


def kl_loss(logits: Tensor, data: StepData) -> Tensor:
    """Mean cross-entropy (nats) of student logits [N, H] to the teacher's top probabilities within the head, renormalised."""
    kept = data.head_index != IGNORED
    teacher = data.logprobs.exp() * kept
    teacher = teacher / teacher.sum(-1, keepdim=True).clamp(min=1e-6)
    chosen = logits.gather(-1, data.head_index.clamp(min=0))
    return (logits.logsumexp(-1) - (teacher * chosen).sum(-1)).mean()


def warped_teacher(logprobs: Tensor, temperature: float, top_p: float) -> Tensor:
    """Teacher probabilities [N, K] (sorted, descending) after temperature and nucleus, renormalised over its top ids."""
    probabilities = torch.softmax(logprobs / temperature, dim=-1)
    probabilities = probabilities * (probabilities.cumsum(-1) - probabilities < top_p)
    return probabilities / probabilities.sum(-1, keepdim=True)


def warped_student(logits: Tensor, temperature: float, top_p: float) -> Tensor:
    """Student probabilities [N, H] after temperature and nucleus; the kept set is a constant to the gradient."""
    probabilities = torch.softmax(logits / temperature, dim=-1)
    with torch.no_grad():
        top = probabilities.topk(256, dim=-1).values
        size = (top.cumsum(-1) - top < top_p).sum(-1, keepdim=True).clamp(max=256)
        floor = top.gather(-1, size - 1)
    probabilities = probabilities * (probabilities >= floor)
    return probabilities / probabilities.sum(-1, keepdim=True)


def expected_acceptance(logits: Tensor, data: StepData, temperature: float, top_p: float) -> Tensor:
    """sum_x min(p(x), q(x)) [N] at each answer position (teacher from its stored top ids)."""
    teacher = warped_teacher(data.logprobs, temperature, top_p)
    student = warped_student(logits, temperature, top_p).gather(-1, data.head_index.clamp(min=0))
    return (torch.minimum(teacher, student) * (data.head_index != IGNORED)).sum(-1)


def schedule(step: int, total: int, warmup: int) -> float:
    """Linear warm-up, then cosine to a tenth... of the peak at the end: the factor on the learning rate."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


def batches(sequences: Sequence[Sequence_], plan: TrainingPlan, epoch: int) -> Iterator[list[Sequence_]]:
    """Batches of like length in an order that depends on (seed, epoch) alone."""
    generator = torch.Generator().manual_seed(plan.seed * 1000 + epoch)
    order = torch.randperm(len(sequences), generator=generator).tolist()
    pool = plan.sequences_per_step * 32
    groups = []
    for start in range(0, len(order), pool):
        chunk = sorted(order[start : start + pool], key=lambda i: len(sequences[i].tokens))
        groups += [chunk[i : i + plan.sequences_per_step] for i in range(0, len(chunk), plan.sequences_per_step)]
    for group in torch.randperm(len(groups), generator=generator).tolist():
        yield [sequences[i] for i in groups[group]]


def optimizers(student: Student, plan: TrainingPlan) -> list[torch.optim.Optimizer]:
    """AdamW, or Muon for the matrices and AdamW for the norms."""
    parameters = [p for _, p in student.trained_parameters()]
    matrices = [p for p in parameters if p.ndim == 2]
    vectors = [p for p in parameters if p.ndim != 2]
    if plan.muon_learning_rate == 0:
        return [torch.optim.AdamW(parameters, lr=plan.adam_learning_rate, betas=(0.9, 0.95), weight_decay=plan.weight_decay)]
    return [
        torch.optim.Muon(matrices, lr=plan.muon_learning_rate, weight_decay=plan.weight_decay, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(vectors, lr=plan.adam_learning_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


@torch.no_grad()
def evaluate(student: Student, sequences: Sequence[Sequence_], plan: TrainingPlan, head_position: Tensor) -> tuple[float, float]:
    """(mean KL cross-entropy in nats, mean expected acceptance) over held-out answers."""
    loss, accepted, count = 0.0, 0.0, 0
    ordered = sorted(sequences, key=lambda s: len(s.tokens))
    for start in range(0, len(ordered), plan.sequences_per_step):
        data = collate(ordered[start : start + plan.sequences_per_step], head_position)
        logits = student(data.ids, data.wanted)
        loss += float(kl_loss(logits, data)) * len(data.wanted)
        accepted += float(expected_acceptance(logits, data, plan.temperature, plan.top_p).sum())
        count += len(data.wanted)
    return loss / count, accepted / count
