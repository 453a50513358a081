"""Where and how often a piece of code makes the host wait for the device, on the CPU where nothing has to wait.

A dispatch mode sees the ATen operations that read a value (`item`, `bool`, indexing by a mask); what leaves torch
without an operation on the CPU (`tolist`, `numpy`, `cpu`, `to("cpu")`) is seen by patching the methods of Tensor.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from specstudy.config import PROJECT_ROOT

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


Note = Callable[[str, bool], None]
"""Is told the kind of a synchronisation, and whether all that it reads is known to be on the host already."""


class _Reads(TorchDispatchMode):
    def __init__(self, note: Note) -> None:
        super().__init__()
        self._note = note

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function._schema.name.removeprefix("aten::")
        if name in READING_OPERATIONS or (name == "index" and _by_mask(args[1])):
            self._note(name, all(map(_on_host, tree_leaves((args, kwargs)))))
        return function(*args, **(kwargs or {}))


def _on_host(value: object) -> bool:
    """Whether a tensor has the mark of `mps_rules` on it, or this is none."""
    return not isinstance(value, Tensor) or hasattr(value, "is_on_host")


def _by_mask(indices: Any) -> bool:
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)


@contextmanager
def host_synchronisations() -> Iterator[Counter[str]]:
    """Within this block, counts by kind."""
    counts: Counter[str] = Counter()
    with _noting(lambda kind, on_host: counts.update([kind])):
        yield counts


@contextmanager
def synchronising_places() -> Iterator[Counter[str]]:
    """Within this block, counts by place: the innermost function of the package, as `sampling.draw`, and nothing for
    what is on the host already."""
    counts: Counter[str] = Counter()
    with _noting(lambda kind, on_host: None if on_host else counts.update([_place()])):
        yield counts


@contextmanager
def _noting(note: Note) -> Iterator[None]:
    """A method that calls another, or an operation, is noted once."""
    inside = 0

    def note_outermost(kind: str, on_host: bool) -> None:
        if not inside:
            note(kind, on_host)

    def noting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if name != "to" or _moves_to_host(args, kwargs):
                note_outermost(name, _on_host(self))
            inside += 1
            try:
                return real(self, *args, **kwargs)
            finally:
                inside -= 1

        return method

    patches = [patch.object(Tensor, name, noting(name, getattr(Tensor, name))) for name in READING_METHODS]
    for one in patches:
        one.start()
    try:
        with _Reads(note_outermost):
            yield
    finally:
        for one in patches:
            one.stop()


def _place() -> str:
    frame = sys._getframe()
    while not frame.f_code.co_filename.startswith(str(PROJECT_ROOT / "src")):
        if frame.f_back is None:
            return "outside the package"
        frame = frame.f_back
    module = frame.f_globals["__name__"].rpartition(".")[2]
    return f"{module}.{frame.f_code.co_qualname.partition('.<locals>')[0]}"


def _moves_to_host(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether this `to` names the host in words; a device object may be the tensor's own, whatever that is."""
    return any(isinstance(named, str) and named == "cpu" for named in [*args, kwargs.get("device")])
