"""A shallow draft: a few layers of the verifier, distilled. Embedding and output head are the verifier's own."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from specstudy.errors import UserError
from specstudy.models.packed_linear import packed, product

CARD = "draft.json"
WEIGHTS = "draft.safetensors"


class FrequentIdsHead(nn.Module):
    """Output head over some thousand frequent ids; any other id gets a logit of -inf: its probability is exactly 0."""

    ids: Tensor
    weight: Tensor

    def __init__(self, full_head: Tensor, ids: Tensor) -> None:
        """Rows `ids` (distinct) of `full_head` [vocabulary, D]. Raises ValueError for ids that it does not have."""
        super().__init__()
        self.n_vocabulary = full_head.shape[0]
        if not (0 < len(ids) == len(ids.unique()) and int(ids.min()) >= 0 and int(ids.max()) < self.n_vocabulary):
            raise ValueError(f"the ids of the head are not distinct ids below {self.n_vocabulary}")
        self.register_buffer("ids", ids.to(full_head.device, torch.int64), persistent=False)
        self.register_buffer("weight", full_head[self.ids], persistent=False)

    def pack(self) -> None:
        """Keep the rows in oneDNN's own order (see packed_linear)."""
        self.weight = packed(self.weight)

    def forward(self, hidden: Tensor) -> Tensor:
        """Hidden states [..., D] to logits [..., vocabulary]."""
        scores = product(hidden, self.weight)
        logits = scores.new_full((*scores.shape[:-1], self.n_vocabulary), -torch.inf)
        return logits.index_copy_(-1, self.ids, scores)


@dataclass(frozen=True)
class Card:
    """What the draft's card must say: how many layers, cut from which verifier (its name, and its fingerprint)."""

    n_layers: int
    verifier: str
    verifier_sha256: str


def is_shallow_draft(directory: Path) -> bool:
    """Whether `directory` holds a draft that needs its verifier's embedding."""
    return (directory / CARD).is_file()


def read_card(directory: Path) -> Card:
    """The card of a draft. Raises UserError if it is damaged."""
    try:
        card = json.loads((directory / CARD).read_text(encoding="utf-8"))
        return Card(int(card["n_layers"]), str(card["verifier"]), str(card["verifier_sha256"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"models.draft={directory}: {CARD} is damaged ({error!r}); fetch it again") from error


def distillation(directory: Path) -> dict[str, int | None]:
    """Layers of the draft in `directory`, the answers that it was trained on (steps times answers a step) and their
    tokens; None for what its card does not say."""
    n_layers = read_card(directory).n_layers
    card = json.loads((directory / CARD).read_text(encoding="utf-8"))
    plan = card.get("training") or {}
    steps, size = plan.get("steps"), plan.get("examples_per_step")
    return {
        "n_layers": n_layers,
        "n_training_answers": steps * size if steps and size else None,
        "n_training_tokens": card.get("n_trained_tokens"),
    }


def checked_card(directory: Path, verifier_fingerprint: str) -> Card:
    """The card of a draft that was cut from this verifier. Raises UserError if it is damaged or another verifier's."""
    card = read_card(directory)
    if card.verifier_sha256 != verifier_fingerprint:
        raise UserError(
            f"models.draft={directory}: these layers were cut from {card.verifier} and fit no other verifier; "
            "choose that verifier, or another draft"
        )
    return card


def save_shallow_draft(directory: Path, body: nn.Module, head_ids: Tensor, card: dict[str, object]) -> None:
    """Write layers and final norm in bfloat16, the head's ids, and the card that says what they are cut from.

    The card comes last and makes it a draft: a killed save leaves none.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / CARD).unlink(missing_ok=True)
    tensors = {
        name: value.to(torch.bfloat16).contiguous()
        for name, value in body.state_dict().items()
        if name.startswith("layers.") or name == "norm.weight"
    }
    save_file({**tensors, "head_ids": head_ids.to(torch.int32)}, str(directory / WEIGHTS))
    text = json.dumps(card, indent=2, ensure_ascii=False) + "\n"
    unfinished = directory / f"{CARD}.unfinished"
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(directory / CARD)


def load_shallow_draft(
    directory: Path, verifier: PreTrainedModel, verifier_fingerprint: str
) -> tuple[Card, PreTrainedModel]:
    """The draft on the verifier's device and in its dtype. Raises UserError if it is damaged or another verifier's."""
    card = checked_card(directory, verifier_fingerprint)
    try:
        tensors = load_file(str(directory / WEIGHTS))
        return card, _assemble(verifier, card.n_layers, tensors.pop("head_ids"), tensors)
    except (OSError, SafetensorError, KeyError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"models.draft={directory}: {WEIGHTS} is damaged ({reason}); fetch it again") from error


def of_fewer_layers(model: PreTrainedModel, n_layers: int) -> PreTrainedModel:
    """A model of this class and configuration but for its `n_layers` layers, given no memory."""
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = n_layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:n_layers]
    with torch.device("meta"):
        return type(model)(config)


def without_weights(verifier: PreTrainedModel, n_layers: int, head_ids: Tensor) -> PreTrainedModel:
    """A draft with layers and norm of shapes alone; embedding, rotary table and the head's rows are the verifier's."""
    draft = of_fewer_layers(verifier, n_layers)
    draft.set_input_embeddings(verifier.get_input_embeddings())
    draft.model.rotary_emb = verifier.model.rotary_emb
    draft.lm_head = FrequentIdsHead(verifier.get_output_embeddings().weight.detach(), head_ids)
    return draft


def _assemble(
    verifier: PreTrainedModel, n_layers: int, head_ids: Tensor, tensors: dict[str, Tensor]
) -> PreTrainedModel:
    """The draft with these layers and norm."""
    draft = without_weights(verifier, n_layers, head_ids)
    embedding = verifier.get_input_embeddings().weight.detach()
    own = {name: value.to(embedding.device, embedding.dtype) for name, value in tensors.items()}
    shared = {"embed_tokens.weight": embedding}
    draft.model.load_state_dict({**own, **shared}, assign=True)
    return draft.eval().requires_grad_(False)
