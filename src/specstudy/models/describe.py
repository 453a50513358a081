"""What small files tell of a pair: sizes, kinds of layers, context. Weights are given no memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from specstudy.errors import UserError
from specstudy.models import shallow
from specstudy.models.cache import sliding_windows
from specstudy.models.context import context_length
from specstudy.models.dimensions import dimensions_of
from specstudy.models.fingerprint import fingerprint_of
from specstudy.models.load import PairSources
from specstudy.models.memory import ModelSize
from specstudy.models.rotary import constant_frequencies
from specstudy.models.sources import ModelSource, trunk_of


@dataclass(frozen=True)
class Description:
    """A model that is not loaded. `sliding_windows`: for each layer how many of the last tokens it sees, None for all;
    `context_length` is None where the configuration promises nothing; `constant_frequencies` as in `models.rotary`;
    `conversion` is of a GGUF file's header."""

    files: list[Path]
    size: ModelSize
    sliding_windows: list[int | None]
    context_length: int | None
    constant_frequencies: int | None
    conversion: dict[str, Any] | None = None

    @property
    def usable_context(self) -> int | None:
        """Longest text that can be measured."""
        return min(filter(None, (self.context_length, self.constant_frequencies)), default=None)


def describe_pair(sources: PairSources) -> tuple[Description, Description]:
    """Verifier and draft. Raises UserError for a configuration of no model, or another verifier's draft."""
    verifier = describe(sources.verifier)
    if isinstance(sources.draft, Path):
        trunk = trunk_of(sources.verifier)
        return verifier, _describe_shallow(sources.draft, trunk)
    return verifier, describe(sources.draft)


def describe(source: ModelSource) -> Description:
    """A model from its own files. Raises UserError."""
    module = source.without_weights()
    dimensions = source.dimensions(module)
    # Tied weights are one parameter here, as they are in memory.
    n_parameters = sum(parameter.numel() for parameter in module.parameters())
    embedding, head = module.get_input_embeddings().weight, module.get_output_embeddings().weight
    return Description(
        files=source.weight_files(),
        size=ModelSize(n_parameters, dimensions, dimensions.output_rows, head.numel() if head is embedding else 0),
        sliding_windows=sliding_windows(module.config),
        context_length=context_length(module),
        constant_frequencies=constant_frequencies(module.config),
        conversion=source.gguf.description() if source.gguf else None,
    )


def _describe_shallow(directory: Path, trunk: ModelSource) -> Description:
    """Its own are its layers, and its head's copy of some of the verifier's rows."""
    card = shallow.checked_card(directory, fingerprint_of(trunk.weight_files()))
    verifier = trunk.without_weights()
    path = directory / shallow.WEIGHTS
    try:
        with safe_open(str(path), framework="pt") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 - a file is no dict
        n_head_ids = shapes.pop("head_ids")[0]
        module = shallow.without_weights(verifier, card.n_layers, torch.arange(n_head_ids))
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise UserError(f"models.draft={directory}: {path.name} is damaged ({error}); fetch it again") from error
    dimensions = dimensions_of(module)
    n_own = sum(torch.Size(shape).numel() for shape in shapes.values())
    return Description(
        files=[path],
        size=ModelSize(
            n_own + n_head_ids * dimensions.hidden_size, dimensions, len(verifier.get_output_embeddings().weight)
        ),
        sliding_windows=sliding_windows(module.config),
        context_length=context_length(module),
        constant_frequencies=constant_frequencies(module.config),
    )
