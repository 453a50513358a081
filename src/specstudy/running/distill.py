"""How the shipped draft was made: sample the verifier's answers, train a few of its layers on them, write the draft.

Every phase goes on from where it was interrupted. Shards and checkpoints lie in .cache/distill; drafts of other layers
or steps use the same shards.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specstudy.config import PROJECT_ROOT

if TYPE_CHECKING:
    from specstudy.distill.sample import SamplingPlan
    from specstudy.distill.train import Quality, TrainingPlan
    from specstudy.models.load import LanguageModel

WORK = PROJECT_ROOT / ".cache" / "distill"
DRAFT = PROJECT_ROOT / "data" / "models" / "smollm2-draft"
DEFAULT_ANSWER_TOKENS = 700_000


def distill(
    tokens: str = str(DEFAULT_ANSWER_TOKENS),
    layers: str = "0,29",
    head: str = "8192",
    steps: str = "3000",
    threads: str = "0",
    directory: str = str(DRAFT),
    work: str = str(WORK),
) -> None:
    """Sample at least `tokens` answer tokens, train `layers` of the verifier, write the draft to `directory`."""
    import torch

    from specstudy.distill.sample import SamplingPlan
    from specstudy.distill.train import TrainingPlan
    from specstudy.models import embedded
    from specstudy.models.device import usable_cores
    from specstudy.models.load import load_model
    from specstudy.models.sources import find_source

    torch.set_num_threads(int(threads) or usable_cores())
    source = find_source(embedded.NAME, "models.verifier")
    tokenizer = source.tokenizer()
    verifier = load_model(source, tokenizer, torch.device("cpu"), torch.bfloat16)
    ends = tuple(tokenizer.all_special_ids)
    shards = Path(work) / "shards"
    sampling = SamplingPlan()
    _sample(verifier, tokenizer, ends, sampling, shards, int(tokens))
    training = TrainingPlan(
        layers=tuple(int(layer) for layer in layers.split(",")), head_size=int(head), steps=int(steps)
    )
    _train(verifier, ends, sampling, training, shards, Path(work) / f"training-{training.name}.pt", Path(directory))


def _sample(
    verifier: LanguageModel, tokenizer: Any, ends: tuple[int, ...], plan: SamplingPlan, shards: Path, wanted: int
) -> None:
    import torch
    from safetensors import safe_open

    from specstudy.distill.prompts import distillation_prompts
    from specstudy.distill.sample import prompt_batches, sample_answers, write_shard

    prompts = [
        torch.tensor(
            tokenizer.apply_chat_template(
                [{"role": "user", "content": p.text}], add_generation_prompt=True, return_dict=False
            )
        )
        for p in distillation_prompts(plan.n_prompts, plan.seed)
    ]
    n_tokens = 0
    for index, batch in enumerate(prompt_batches([len(p) for p in prompts], plan)):
        if n_tokens >= wanted:
            return
        path = shards / f"shard-{index:05d}.safetensors"
        if path.exists():
            with safe_open(str(path), "pt") as shard:
                n_tokens += shard.get_slice("top_ids").get_shape()[0]
            continue
        answers = sample_answers(verifier.module, [prompts[i] for i in batch], plan, index, ends)
        n_tokens += write_shard(path, answers)
        print(f"sampled {n_tokens} of {wanted} answer tokens", flush=True)
    print(f"all prompts are used: {n_tokens} answer tokens")


def _train(
    verifier: LanguageModel,
    ends: tuple[int, ...],
    sampling: SamplingPlan,
    plan: TrainingPlan,
    shards: Path,
    checkpoint: Path,
    directory: Path,
) -> None:
    from specstudy.distill.data import head_positions, read_shards
    from specstudy.distill.train import Student, Trainer, evaluate

    training, held_out = read_shards(shards)
    head_ids = _head_ids(checkpoint.with_name("head.safetensors"), training, plan, verifier, ends)
    positions = head_positions(head_ids, verifier.vocabulary)
    student = Student(verifier.module, plan.layers, head_ids)
    trainer = Trainer(student, lambda: read_shards(shards)[0], plan, positions, checkpoint)
    started_s, first_step = time.monotonic(), trainer.step

    def report(step: int, loss: float) -> None:
        left_s = (time.monotonic() - started_s) / (step - first_step) * (plan.steps - step)
        print(f"step {step} of {plan.steps}, loss {loss:.3f}, {left_s / 60:.0f} minutes left", flush=True)

    trainer.run(report)
    quality = evaluate(student, held_out, plan, positions)
    print(
        f"held out: cross-entropy {quality.cross_entropy_nats:.3f} nats, "
        f"alpha_expected {quality.expected_acceptance:.3f}"
    )
    counts = {
        "n_trained_tokens": trainer.n_trained_tokens,
        "training_tokens_by_pass": trainer.tokens_by_pass,
        "n_held_out_tokens": sum(e.n_answer_tokens for e in held_out),
    }
    _write(verifier, student, head_ids, sampling, plan, quality, directory, counts)


def _head_ids(
    path: Path, training: list[Any], plan: TrainingPlan, verifier: LanguageModel, ends: tuple[int, ...]
) -> Any:
    """The ids of the head, chosen when training first begins: more shards later do not change them."""
    from safetensors.torch import load_file, save_file

    from specstudy.distill.data import frequent_ids

    if path.exists() and len(load_file(str(path))["ids"]) == plan.head_size:
        return load_file(str(path))["ids"]
    ids = frequent_ids(training, plan.head_size, verifier.vocabulary, ends)
    save_file({"ids": ids}, str(path))
    return ids


def _write(
    verifier: LanguageModel,
    student: Any,
    head_ids: Any,
    sampling: SamplingPlan,
    plan: TrainingPlan,
    quality: Quality,
    directory: Path,
    counts: dict[str, Any],
) -> None:
    from specstudy.models.shallow import save_shallow_draft

    save_shallow_draft(
        directory,
        student.body,
        head_ids,
        {
            "verifier": verifier.name,
            "verifier_sha256": verifier.fingerprint,
            "n_layers": len(plan.layers),
            "sampling": asdict(sampling),
            "training": asdict(plan),
            **counts,
            "held_out": asdict(quality),
        },
    )
    print(f"wrote {directory}: {json.dumps(asdict(quality))}")
