"""A shallow draft: a few layers of the verifier, distilled. Embedding and output head are the verifier's own."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from specstudy.errors import UserError

CARD = "draft.json"
WEIGHTS = "draft.safetensors"


class FrequentIdsHead(nn.Module):
    """Output head over some thousand frequent ids; every other id gets a logit of -inf, so its probability is exactly 0."""

    def __init__(self, embedding: Tensor, ids: Tensor) -> None:
        super().__init__()
        self.n_vocabulary = embedding.shape[0]
        self.register_buffer("ids", ids.to(embedding.device, torch.int64), persistent=False)
        self.register_buffer("weight", embedding[ids.to(embedding.device)].clone(), persistent=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Hidden states [..., D] to logits [..., vocabulary]."""
        scores = hidden @ self.weight.T
        logits = scores.new_full((*scores.shape[:-1], self.n_vocabulary), -torch.inf)
        return logits.index_copy_(-1, self.ids, scores)


def is_shallow_draft(directory: Path) -> bool:
    """Whether `directory` holds a draft that needs its verifier's embedding."""
    return (directory / CARD).is_file()


def cut(verifier: nn.Module, n_layers: int) -> nn.Module:
    """An untrained model of the verifier's class with `n_layers` layers that shares its embedding; head still to be set."""
    config = copy.deepcopy(verifier.config)
    config.num_hidden_layers = n_layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:n_layers]
    with torch.device("meta"):
        draft = type(verifier)(config)
    draft.set_input_embeddings(verifier.get_input_embeddings())
    return draft


def save_shallow_draft(directory: Path, body: nn.Module, head_ids: Tensor, card: dict[str, object]) -> None:
    """Write layers and final norm in bfloat16, the head's ids, and the card that says what they are cut from."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: value.to(torch.bfloat16).contiguous()
        for name, value in body.state_dict().items()
        if name.startswith("layers.") or name == "norm.weight"
    }
    save_file({**tensors, "head_ids": head_ids.to(torch.int32)}, str(directory / WEIGHTS))
    (directory / CARD).write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load_shallow_draft(directory: Path, verifier: nn.Module, verifier_fingerprint: str) -> nn.Module:
    """The draft on the verifier's device and in its dtype. Raises UserError if it was cut from another verifier."""
    card = json.loads((directory / CARD).read_text(encoding="utf-8"))
    if card["verifier_sha256"] != verifier_fingerprint:
        raise UserError(
            f"models.draft={directory}: these layers were cut from {card['verifier']} and fit no other verifier; "
            "choose that verifier, or another draft"
        )
    tensors = load_file(str(directory / WEIGHTS))
    head_ids = tensors.pop("head_ids")
    embedding = verifier.get_input_embeddings().weight
    draft = cut(verifier, int(card["n_layers"]))
    draft.model.load_state_dict(
        {name: value.to(embedding.device, embedding.dtype) for name, value in tensors.items()}, strict=False, assign=True
    )
    draft.model.rotary_emb = copy.deepcopy(verifier.model.rotary_emb)
    draft.lm_head = FrequentIdsHead(embedding.detach(), head_ids)
    return draft.eval()
