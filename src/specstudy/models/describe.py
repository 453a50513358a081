"""What small files tell of a pair: sizes, kinds of layers, context. Weights are given no memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from specstudy.errors import UserError
from specstudy.models import shallow
from specstudy.models.cache import sliding_windows
from specstudy.models.dimensions import dimensions_of
from specstudy.models.fingerprint import fingerprint_of
from specstudy.models.load import PairSources
from specstudy.models.memory import ModelSize
from specstudy.models.rotary import constant_frequencies
from specstudy.models.sources import ModelSource, trunk_of


@dataclass(frozen=True)
class Description:
    """A model that is not loaded. `sliding_windows`: for each layer how many of the last tokens it sees, None for all;
    `context_length` is None where the configuration promises nothing; `constant_frequencies` as in `models.rotary`."""

    files: list[Path]
    size: ModelSize
    sliding_windows: list[int | None]
    context_length: int | None
    constant_frequencies: int | None

    @property
    def usable_context(self) -> int | None:
        """Longest text that can be measured."""
        return min(filter(None, (self.context_length, self.constant_frequencies)), default=None)


def describe_pair(sources: PairSources) -> tuple[Description, Description]:
    """Verifier and draft. Raises UserError for a configuration of no model, or another verifier's draft."""
    verifier = describe(sources.verifier)
    if isinstance(sources.draft, Path):
        trunk = trunk_of(sources.verifier)
        cut_from = verifier if trunk is sources.verifier else describe(trunk)
        return verifier, _describe_shallow(sources.draft, cut_from)
    return verifier, describe(sources.draft)


def describe(source: ModelSource) -> Description:
    """A model from its own files. Raises UserError."""
    module = source.without_weights()
    config = module.config
    dimensions = dimensions_of(module)
    # Tied weights are one parameter here, as they are in memory.
    n_parameters = sum(parameter.numel() for parameter in module.parameters())
    embedding, head = module.get_input_embeddings().weight, module.get_output_embeddings().weight
    return Description(
        files=source.weight_files(),
        size=ModelSize(n_parameters, dimensions, dimensions.output_rows, head.numel() if head is embedding else 0),
        sliding_windows=sliding_windows(config),
        context_length=getattr(config.get_text_config(decoder=True), "max_position_embeddings", None),
        constant_frequencies=constant_frequencies(config),
    )


def _describe_shallow(directory: Path, verifier: Description) -> Description:
    """Its own are its layers, and its head's copy of some of the verifier's rows."""
    card = shallow.checked_card(directory, fingerprint_of(verifier.files))
    path = directory / shallow.WEIGHTS
    try:
        with safe_open(str(path), framework="pt") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 - a file is no dict
        n_head_ids = shapes.pop("head_ids")[0]
    except (OSError, SafetensorError, KeyError) as error:
        raise UserError(f"models.draft={directory}: {path.name} is damaged ({error}); fetch it again") from error
    dimensions = replace(verifier.size.dimensions, n_layers=card.n_layers, output_rows=n_head_ids)
    n_own = sum(torch.Size(shape).numel() for shape in shapes.values())
    return Description(
        files=[path],
        size=ModelSize(n_own + n_head_ids * dimensions.hidden_size, dimensions, verifier.size.vocabulary_rows),
        sliding_windows=verifier.sliding_windows[: card.n_layers],
        context_length=verifier.context_length,
        constant_frequencies=verifier.constant_frequencies,
    )
