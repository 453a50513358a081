"""The verifier's first layers and its head as a draft: no weights of its own."""

from __future__ import annotations

import copy
import dataclasses

import torch
from torch import nn

from specstudy.errors import UserError
from specstudy.models.dimensions import dimensions_of
from specstudy.models.load import LanguageModel


def first_layers(verifier: LanguageModel, n_layers: int) -> LanguageModel:
    """A model of the verifier's class with its first `n_layers` layers; every weight is the verifier's own.

    Raises UserError for more layers than there are, and for classes that do not keep them in `model.layers`.
    """
    body = getattr(verifier.module, "model", None)
    layers = getattr(body, "layers", None)
    if body is None or layers is None:
        raise UserError(f"spec.proposer=early_exit does not know where {verifier.name} keeps its layers; use model")
    if n_layers >= len(layers):
        raise UserError(f"spec.exit_layers={n_layers} must be fewer than the {len(layers)} layers of {verifier.name}")
    config = copy.deepcopy(verifier.module.config)
    config.num_hidden_layers = n_layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:n_layers]
    with torch.device("meta"):
        module = type(verifier.module)(config)
    for name, part in body.named_children():
        setattr(module.model, name, nn.ModuleList(layers[:n_layers]) if name == "layers" else part)
    module.lm_head = verifier.module.get_output_embeddings()
    return dataclasses.replace(
        verifier,
        name=f"first {n_layers} layers of {verifier.name}",
        module=module.eval(),
        dimensions=dimensions_of(module),
    )
