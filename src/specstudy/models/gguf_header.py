"""What a GGUF file states, with a record of what was asked for: what is left over would have been dropped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gguf import GGUFReader, ReaderTensor

# What no result depends on: where a model comes from, how its file was made, tokens for tasks that are not measured.
DESCRIPTIVE = ("GGUF.", "general.", "quantize.imatrix.", "mradermacher.", "tokenizer.chat_template.")
MEANS_NOTHING = {
    "split.no",
    "split.tensors.count",
    "tokenizer.chat_templates",
    "tokenizer.huggingface.json",
    "tokenizer.ggml.token_type_count",
    *(f"tokenizer.ggml.{name}_token_id" for name in ("seperator", "mask", "cls", "prefix", "suffix", "middle")),
    *(f"tokenizer.ggml.fim_{name}_token_id" for name in ("pre", "suf", "mid", "pad", "rep", "sep")),
}


class GgufHeader:
    """Metadata and tensors of a file. Raises ValueError, in words for the user, for a file that is not a whole one."""

    def __init__(self, path: Path) -> None:
        try:
            reader = GGUFReader(path)
            self.architecture = str(reader.fields["general.architecture"].contents())
        except Exception as error:  # whatever a damaged file makes the library raise
            reason = " ".join(str(error).split())
            raise ValueError(f"{path.name} is damaged or cut off ({reason}); fetch it again") from error
        self._fields = reader.fields
        self._asked = {"general.architecture"}
        self.tensors: dict[str, ReaderTensor] = {tensor.name: tensor for tensor in reader.tensors}
        self.used_tensors: set[str] = set()
        self.expect("general.type", "model")
        if (n_parts := self.get("split.count", 1)) > 1:
            raise ValueError(
                f"it is one of {n_parts} parts; join them with `llama-gguf-split --merge FIRST_PART JOINED.gguf` "
                "and name the joined file"
            )

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or `default` where it is not there. A leading `.` stands for the architecture."""
        key = self._full(key)
        self._asked.add(key)
        return self._fields[key].contents() if key in self._fields else default

    def required(self, key: str) -> Any:
        """The value of a key. Raises ValueError where the file does not have it."""
        value = self.get(key)
        if value is None:
            raise ValueError(f"it does not state {self._full(key)}")
        return value

    def positive(self, key: str, default: Any = None) -> Any:
        """A number over 0. Raises ValueError for another value, or where the file does not have it and nobody else."""
        value = self.required(key) if default is None else self.get(key, default)
        return self._over_zero(key, value)

    def one(self, key: str, default: Any = None) -> Any:
        """A number over 0 that may be given layer by layer. Raises ValueError for another, or if layers differ."""
        value = self.get(key, default)
        if not isinstance(value, list):
            return self._over_zero(key, value)
        if len(set(value)) != 1:
            raise ValueError(f"{self._full(key)} differs from layer to layer, which is not read")
        return self._over_zero(key, value[0])

    def _over_zero(self, key: str, value: Any) -> Any:
        if not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ValueError(f"{self._full(key)} is {value!r}, and has to be a number over 0")
        return value

    def expect(self, key: str, *readable: Any) -> None:
        """Raises ValueError if the key has any other value than these, for what cannot be applied."""
        value = self.get(key, readable[0])
        if value not in readable:
            raise ValueError(f"{self._full(key)} is {value!r}, and only {_listed(readable)} can be read")

    def tensor(self, name: str) -> ReaderTensor:
        """A tensor that is no weight of the model. Raises ValueError where the file does not have it."""
        if name not in self.tensors:
            raise ValueError(f"it does not have the tensor {name}")
        self.used_tensors.add(name)
        return self.tensors[name]

    def leftover(self) -> list[str]:
        """Keys that nobody asked for and that are not known to mean nothing."""
        unknown = self._fields.keys() - self._asked - MEANS_NOTHING
        return sorted(key for key in unknown if not key.startswith(DESCRIPTIVE))

    def _full(self, key: str) -> str:
        return self.architecture + key if key.startswith(".") else key


def _listed(values: Sequence[Any]) -> str:
    return " or ".join(map(repr, values))
