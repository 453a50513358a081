"""The tensors of a model's safetensors files, by the headers of the files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open

from specstudy.models.sources import WEIGHTS, WEIGHTS_INDEX, ModelSource, read_index


@dataclass(frozen=True)
class Stored:
    """A tensor in a file, by the file's header."""

    file: Path
    shape: tuple[int, ...]
    dtype: str

    @property
    def n_elements(self) -> int:
        return torch.Size(self.shape).numel()


def same_values(ours: Stored, our_name: str, theirs: Stored, their_name: str) -> bool:
    """Whether two stored tensors are equal, bit by bit."""
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        return False
    values = []
    for tensor, name in ((ours, our_name), (theirs, their_name)):
        with safe_open(str(tensor.file), framework="pt") as opened:
            values.append(opened.get_tensor(name).flatten().view(torch.uint8))
    return torch.equal(*values)


def stored_tensors(source: ModelSource) -> dict[str, Stored]:
    """Every tensor of the weight files. Raises UserError where the files contradict each other or their index."""
    stored: dict[str, Stored] = {}
    for file in source.weight_files():
        with safe_open(str(file), framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - a file is no dict
                part = opened.get_slice(name)
                tensor = Stored(file, tuple(part.get_shape()), part.get_dtype())
                if name in stored and not same_values(stored[name], name, tensor, name):
                    raise source.refused(
                        f"{stored[name].file.name} and {file.name} hold different values of {name}; "
                        "they are not parts of one model"
                    )
                stored[name] = tensor
    if not (source.directory / WEIGHTS).is_file():
        promised = [name for name in read_index(source.directory) if name not in stored]
        if promised:
            raise source.refused(
                f"{WEIGHTS_INDEX} lists {len(promised)} tensors that its files do not hold, the first {promised[0]}; "
                "they are not parts of one model"
            )
    return stored


def least_weight_bytes(source: ModelSource, bytes_per_value: int) -> int:
    """What the weights of a model take at least: of a GGUF the file, which is dequantised to no less."""
    if source.gguf_file:
        return sum(file.stat().st_size for file in source.weight_files())
    return bytes_per_value * sum(tensor.n_elements for tensor in stored_tensors(source).values())
