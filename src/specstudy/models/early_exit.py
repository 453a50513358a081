"""The verifier's first layers and its head as a draft: no weights of its own."""

from __future__ import annotations

import dataclasses
from weakref import WeakKeyDictionary

from torch import nn
from transformers import PreTrainedModel

from specstudy.errors import UserError
from specstudy.formulas import Dimensions
from specstudy.models.dimensions import dimensions_of
from specstudy.models.load import LanguageModel
from specstudy.models.shallow import of_fewer_layers
from specstudy.models.sources import ModelSource

# A draft is made anew for each generation, its sizes are counted once.
_known_dimensions: WeakKeyDictionary[PreTrainedModel, dict[int, Dimensions]] = WeakKeyDictionary()


def refuse_unless_it_has_more_layers(verifier: ModelSource, n_layers: int) -> None:
    """Raise UserError, before any weights load, for a verifier of which `first_layers` could not take so many."""
    _first_of(verifier.without_weights(), verifier.name, n_layers)


def first_layers(verifier: LanguageModel, n_layers: int) -> LanguageModel:
    """A model of the verifier's class with its first `n_layers` layers; every weight is the verifier's own.

    Raises UserError for as many layers as there are or more, and for classes that do not keep them in `model.layers`.
    """
    layers = _first_of(verifier.module, verifier.name, n_layers)
    module = of_fewer_layers(verifier.module, n_layers)
    for name, part in verifier.module.model.named_children():
        setattr(module.model, name, layers if name == "layers" else part)
    module.lm_head = verifier.module.get_output_embeddings()
    return dataclasses.replace(
        verifier,
        name=f"first {n_layers} layers of {verifier.name}",
        module=module.eval(),
        dimensions=_dimensions(verifier.module, module, n_layers),
    )


def _dimensions(verifier: PreTrainedModel, first: PreTrainedModel, n_layers: int) -> Dimensions:
    known = _known_dimensions.setdefault(verifier, {})
    if n_layers not in known:
        known[n_layers] = dimensions_of(first)
    return known[n_layers]


def _first_of(module: PreTrainedModel, name: str, n_layers: int) -> nn.ModuleList:
    layers = getattr(getattr(module, "model", None), "layers", None)
    if layers is None:
        raise UserError(f"spec.proposer=early_exit does not know where {name} keeps its layers; use model")
    if n_layers >= len(layers):
        raise UserError(f"spec.exit_layers={n_layers} must be fewer than the {len(layers)} layers of {name}")
    return nn.ModuleList(layers[:n_layers])
