"""Which weights a model has: a digest that does not depend on the precision or device it runs in."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedModel


def fingerprint_of_files(paths: Sequence[Path]) -> str:
    """sha256 over names, shapes, dtypes and bytes of all tensors in safetensors files, however split among them.

    Any other file (GGUF) counts byte by byte.
    """
    if paths[0].suffix != ".safetensors":
        with paths[0].open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(safe_open(str(path), framework="pt")) for path in paths]
        read = {name: file.get_tensor for file in files for name in file.keys()}  # noqa: SIM118 - not a dict
        return _digest(read, lambda name: read[name](name))


def fingerprint_of(module: PreTrainedModel) -> str:
    """The same of a model's weights as they are in memory: equal to that of the files that it would be saved to."""
    weights = module.state_dict()
    return _digest(weights.keys() - module.all_tied_weights_keys.keys(), weights.__getitem__)


def _digest(names: Iterable[str], read: Callable[[str], Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(names):
        tensor = read(name).detach().cpu().contiguous()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
