"""The student's side: a few of the verifier's layers, trained towards its next-token distribution."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specstudy.distill.data import NOT_IN_HEAD, Batch, Example, collate, epoch_batches


@dataclass(frozen=True)
class TrainingPlan:
    """Which layers are cut and how they are trained. Learning rates are held after a warm-up, and fall at the end.

    `overlap_weight` adds 1 - sum_x min(p(x), q(x)) at the study's temperature and nucleus to the loss: the very
    quantity that decides acceptance (total variation distance, as in DistillSpec, arXiv 2310.08461).
    """

    layers: tuple[int, ...] = (0, 29)
    head_size: int = 8192
    steps: int = 3000
    examples_per_step: int = 6
    matrix_learning_rate: float = 3e-3
    vector_learning_rate: float = 1e-3
    weight_decay: float = 0.01
    warmup_steps: int = 50
    decay_share: float = 0.3
    overlap_weight: float = 3.0
    temperature: float = 0.7
    top_p: float = 0.9
    seed: int = 0

    @property
    def name(self) -> str:
        """What plans commonly differ in, as part of a file name."""
        return f"layers-{'-'.join(map(str, self.layers))}-head-{self.head_size}-steps-{self.steps}"


class Student(nn.Module):
    """Layers copied from the verifier, in float32; embedding and output head are the verifier's own and stay fixed."""

    def __init__(self, verifier: PreTrainedModel, layers: Sequence[int], head_ids: Tensor) -> None:
        super().__init__()
        config = copy.deepcopy(verifier.config)
        config.num_hidden_layers = len(layers)
        self.body = type(verifier.model)(config).float()
        for new, old in enumerate(layers):
            self.body.layers[new].load_state_dict(verifier.model.layers[old].state_dict())
        self.body.norm.load_state_dict(verifier.model.norm.state_dict())
        embedding = verifier.get_input_embeddings().weight.detach()
        self.body.embed_tokens = nn.Embedding.from_pretrained(embedding.float(), freeze=True)
        self.register_buffer("head", embedding[head_ids].clone(), persistent=False)

    def forward(self, batch: Batch) -> Tensor:
        """Float32 logits [N, head] at the wanted positions of a batch."""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = self.body(input_ids=batch.ids, use_cache=False).last_hidden_state
            hidden = hidden.flatten(0, 1).index_select(0, batch.wanted)
            logits: Tensor = hidden.to(self.head.dtype) @ self.head.T
            return logits.float()

    def trained(self) -> list[nn.Parameter]:
        return [p for p in self.parameters() if p.requires_grad]


def cross_entropy_nats(logits: Tensor, batch: Batch) -> Tensor:
    """Mean cross-entropy of student logits [N, H] to the teacher's top probabilities inside the head, renormalised.

    Its gradient is that of the forward KL divergence (Hinton et al. 2015).
    """
    teacher = batch.logprobs.exp() * (batch.head_index != NOT_IN_HEAD)
    teacher = teacher / teacher.sum(-1, keepdim=True).clamp(min=1e-6)
    chosen = logits.gather(-1, batch.head_index.clamp(min=0))
    return (logits.logsumexp(-1) - (teacher * chosen).sum(-1)).mean()


def expected_acceptance(logits: Tensor, batch: Batch, temperature: float, top_p: float) -> Tensor:
    """sum_x min(p(x), q(x)) [N], both warped; p from the teacher's stored top ids. What is kept is a constant to the
    gradient."""
    p = torch.softmax(batch.logprobs / temperature, dim=-1)
    p = p * (p.cumsum(-1) - p < top_p)
    p = p / p.sum(-1, keepdim=True)
    q = torch.softmax(logits / temperature, dim=-1)
    with torch.no_grad():
        top = q.topk(min(256, q.shape[-1]), dim=-1).values
        size = (top.cumsum(-1) - top < top_p).sum(-1, keepdim=True)
        floor = top.gather(-1, size - 1)
    q = q * (q >= floor)
    q = q / q.sum(-1, keepdim=True)
    q = q.gather(-1, batch.head_index.clamp(min=0)) * (batch.head_index != NOT_IN_HEAD)
    return torch.minimum(p, q).sum(-1)


@dataclass(frozen=True)
class Quality:
    """How good a student is on held-out answers."""

    cross_entropy_nats: float
    expected_acceptance: float


@torch.no_grad()
def evaluate(student: Student, held_out: Sequence[Example], plan: TrainingPlan, positions: Tensor) -> Quality:
    """Means over the answer tokens of held-out examples."""
    loss, accepted, count = 0.0, 0.0, 0
    ordered = sorted(held_out, key=lambda e: len(e.tokens))
    for start in range(0, len(ordered), 16):
        batch = collate(ordered[start : start + 16], positions)
        logits = student(batch)
        loss += float(cross_entropy_nats(logits, batch)) * len(batch.wanted)
        accepted += float(expected_acceptance(logits, batch, plan.temperature, plan.top_p).sum())
        count += len(batch.wanted)
    return Quality(loss / count, accepted / count)


def learning_rate_factor(step: int, plan: TrainingPlan) -> float:
    """Linear warm-up, then 1, then linear to 0 over the last `decay_share` of the steps."""
    left = (plan.steps - step) / (plan.decay_share * plan.steps)
    return min(1.0, (step + 1) / plan.warmup_steps, left)


def _optimizers(student: Student, plan: TrainingPlan) -> list[torch.optim.Optimizer]:
    """Muon (Jordan et al. 2024) for matrices, AdamW for norms."""
    matrices = [p for p in student.trained() if p.ndim == 2]
    vectors = [p for p in student.trained() if p.ndim != 2]
    return [
        torch.optim.Muon(
            matrices, lr=plan.matrix_learning_rate, weight_decay=plan.weight_decay, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(vectors, lr=plan.vector_learning_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


class Trainer:
    """Training that can be interrupted: `run` goes on from the checkpoint if there is one.

    `read` gives the training examples at the start of every pass, so that training may begin while sampling goes on;
    `tokens_by_pass` says how many answer tokens each pass had, `n_trained_tokens` on how many it was trained so far
    (the last pass need not be whole).
    """

    def __init__(
        self,
        student: Student,
        read: Callable[[], list[Example]],
        plan: TrainingPlan,
        positions: Tensor,
        checkpoint: Path,
    ) -> None:
        self.student, self.read, self.plan, self.positions = student, read, plan, positions
        self.checkpoint = checkpoint
        self.optimizers = _optimizers(student, plan)
        self.peaks = [group["lr"] for o in self.optimizers for group in o.param_groups]
        self.step = 0
        self.tokens_by_pass: list[int] = []
        self.n_trained_tokens = 0
        self._resume()

    def run(self, report: Callable[[int, float], None], save_every: int = 100) -> None:
        """Train to the end; `report(step, mean loss since the last report)` after every `save_every` steps."""
        losses: list[float] = []
        while self.step < self.plan.steps:
            examples = self.read()
            self.tokens_by_pass.append(sum(e.n_answer_tokens for e in examples))
            for batch in epoch_batches(examples, self.plan.examples_per_step, self.plan.seed, len(self.tokens_by_pass)):
                losses.append(self._train_on(collate(batch, self.positions)))
                if self.step % save_every == 0 or self.step == self.plan.steps:
                    self._save()
                    report(self.step, sum(losses) / len(losses))
                    losses.clear()
                if self.step == self.plan.steps:
                    return

    def _train_on(self, batch: Batch) -> float:
        factor = learning_rate_factor(self.step, self.plan)
        groups = [group for o in self.optimizers for group in o.param_groups]
        for group, peak in zip(groups, self.peaks, strict=True):
            group["lr"] = peak * factor
        logits = self.student(batch)
        accepted = expected_acceptance(logits, batch, self.plan.temperature, self.plan.top_p).mean()
        loss = cross_entropy_nats(logits, batch) + self.plan.overlap_weight * (1.0 - accepted)
        loss.backward()
        nn.utils.clip_grad_norm_(self.student.trained(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.n_trained_tokens += len(batch.wanted)
        return float(loss.detach())

    def _save(self) -> None:
        state = {
            "plan": asdict(self.plan),
            "positions": self.positions,
            "step": self.step,
            "tokens_by_pass": self.tokens_by_pass,
            "n_trained_tokens": self.n_trained_tokens,
            "student": {n: p.detach() for n, p in self.student.named_parameters() if p.requires_grad},
            "optimizers": [o.state_dict() for o in self.optimizers],
        }
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.checkpoint.with_suffix(".tmp")
        torch.save(state, temporary)
        temporary.replace(self.checkpoint)

    def _resume(self) -> None:
        """Go on from a checkpoint of the same plan and head; the pass in hand begins anew."""
        if not self.checkpoint.exists():
            return
        state = torch.load(self.checkpoint, weights_only=True)
        if state.get("plan") != asdict(self.plan) or not torch.equal(state["positions"], self.positions):
            return
        self.step, self.tokens_by_pass = state["step"], state["tokens_by_pass"]
        self.n_trained_tokens = state["n_trained_tokens"]
        self.student.load_state_dict(state["student"], strict=False)
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
