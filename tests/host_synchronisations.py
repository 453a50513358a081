"""Counts how often a piece of code makes the host wait for the device, on the CPU where nothing has to wait.

A dispatch mode sees the ATen operations that read a value (`item`, `bool`, indexing by a mask); what leaves torch
without an operation on the CPU (`tolist`, `numpy`, `cpu`, `to("cpu")`) is seen by patching the methods of Tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# Operations whose result, or its shape, the host has to know before it can go on.
READING_OPERATIONS = {
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "is_nonzero",
    "equal",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "_assert_async",
}
READING_METHODS = (
    "tolist",
    "numpy",
    "cpu",
    "to",
    "item",
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
    "__array__",
)


class _Reads(TorchDispatchMode):
    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function._schema.name.removeprefix("aten::")
        if name in READING_OPERATIONS or (name == "index" and _by_mask(args[1])):
            self._note(name)
        return function(*args, **(kwargs or {}))


def _by_mask(indices: Any) -> bool:
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)


@contextmanager
def host_synchronisations() -> Iterator[Counter[str]]:
    """Within this block, counts by kind. A method that calls another, or an operation, counts once."""
    counts: Counter[str] = Counter()
    inside = 0

    def note(name: str) -> None:
        if not inside:
            counts[name] += 1

    def counting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if name != "to" or _moves_to_host(args, kwargs):
                note(name)
            inside += 1
            try:
                return real(self, *args, **kwargs)
            finally:
                inside -= 1

        return method

    patches = [patch.object(Tensor, name, counting(name, getattr(Tensor, name))) for name in READING_METHODS]
    for one in patches:
        one.start()
    try:
        with _Reads(note):
            yield counts
    finally:
        for one in patches:
            one.stop()


def _moves_to_host(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether this `to` names the host in words; a device object may be the tensor's own, whatever that is."""
    return any(isinstance(named, str) and named == "cpu" for named in [*args, kwargs.get("device")])
