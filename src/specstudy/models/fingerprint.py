"""Which weights a model has: a digest that does not depend on the precision or device it runs in."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open


def fingerprint_of(weight_files: Sequence[Path]) -> str:
    """sha256 over names, shapes, dtypes and bytes of all tensors in safetensors files, however split among them.

    Any other file (GGUF) counts byte by byte.
    """
    if weight_files[0].suffix != ".safetensors":
        with weight_files[0].open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256()
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(safe_open(str(path), framework="pt")) for path in weight_files]
        file_of = {name: file for file in files for name in file.keys()}  # noqa: SIM118 - a file is no dict
        for name in sorted(file_of):
            tensor = file_of[name].get_tensor(name)
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
            digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
