"""Digests of what a model brings along: weights, whatever precision or device they run in; tokens; code of its own."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from torch import nn
from transformers import PreTrainedTokenizerBase
from transformers.utils.hub import TRANSFORMERS_DYNAMIC_MODULE_NAME


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


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """sha256 over all that a fast tokenizer says of ids and texts: vocabulary, special tokens, how text is cut, joined.

    How it was last asked to truncate or pad is state, and left out.
    """
    told = json.loads(tokenizer.backend_tokenizer.to_str())
    del told["truncation"], told["padding"]
    told["special_ids"] = sorted(tokenizer.all_special_ids)
    told["class"] = type(tokenizer).__name__
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def own_code_digest(module: nn.Module) -> str | None:
    """sha256 over the code that a model's files brought along; None for a model of the library's own code."""
    name = type(module).__module__
    if not name.startswith(f"{TRANSFORMERS_DYNAMIC_MODULE_NAME}."):
        return None
    directory = Path(str(sys.modules[name].__file__)).parent
    digest = hashlib.sha256()
    for file in sorted(directory.glob("*.py")):
        digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()
