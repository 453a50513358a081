"""What code must not do on Apple's MPS, seen without a Mac: a dispatch mode that refuses it.

MPS has no float64 and no complex128. Which operations it has is read from the table packaged with the pinned torch:
those with an MPS kernel, and those composed of others. Every tensor counts as on the device, except what `cpu()` or
`to("cpu")` gave and what is computed from nothing but that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import yaml
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FALLBACKS = Path(__file__).with_name("mps_fallbacks.txt")
"""Operations that this program uses although MPS has to hand them to the CPU, one a line."""
_WIDE = (torch.float64, torch.complex128)
_COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
CHOSEN_BY_DEVICE = {"aten::scaled_dot_product_attention"}
"""Operations that take other parts on MPS than on the CPU."""


class NotOnMpsError(AssertionError):
    """Code did what MPS cannot do."""


@cache
def operations_on_mps() -> dict[str, bool]:
    """Every operation of the table, `name.overload`, and whether MPS runs it."""
    table = yaml.load(
        (files("torchgen") / "packaged/ATen/native/native_functions.yaml").read_text(), Loader=yaml.CSafeLoader
    )
    entries = {entry["func"].partition("(")[0]: entry for entry in table}
    return {name: _runs(entry, entries) for name, entry in entries.items()}


def _runs(entry: Mapping[str, Any], entries: Mapping[str, Mapping[str, Any]]) -> bool:
    if delegate := entry.get("structured_delegate"):
        return _runs(entries[delegate], entries)
    if "dispatch" not in entry:
        return True  # composed of others
    keys = {key.strip() for group in entry["dispatch"] for key in group.split(",")}
    return bool(keys & {"MPS", *_COMPOSITE})


def allowed_fallbacks() -> frozenset[str]:
    """The operations of the checked-in list."""
    lines = FALLBACKS.read_text().splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, as a tensor that is known to be on the CPU."""
    tensor = tensor.detach()
    tensor.is_on_host = True
    return tensor


class MpsRules(TorchDispatchMode):
    """Raises NotOnMpsError at the first operation that MPS does not have or that touches a tensor too wide for it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(
        self, operation: Any, types: Any, arguments: Sequence[Any] = (), named: Mapping[str, Any] | None = None
    ) -> Any:
        name = operation.name().removeprefix("aten::")
        self.seen.add(name)
        given = [leaf for leaf in tree_leaves((arguments, named)) if isinstance(leaf, torch.Tensor)]
        if given and all(hasattr(tensor, "is_on_host") for tensor in given):
            return self._marked(operation(*arguments, **(named or {})))
        if not operations_on_mps().get(name, True) and name not in allowed_fallbacks():
            raise NotOnMpsError(f"MPS has no kernel for {name}")
        result = self._by_its_parts(operation, arguments, named or {})
        for tensor in tree_leaves((arguments, named, result)):
            if isinstance(tensor, torch.Tensor) and tensor.dtype in _WIDE:
                raise NotOnMpsError(f"{name} with a tensor of {tensor.dtype}")
        return result

    def _by_its_parts(self, operation: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """What an operation gives. In inference mode one that is composed of others arrives whole: its parts are
        what has to be on MPS."""
        if operation.name() not in CHOSEN_BY_DEVICE:
            with self:
                result = operation.decompose(*arguments, **named)
            if result is not NotImplemented:
                return result
        return operation(*arguments, **named)

    @staticmethod
    def _marked(result: Any) -> Any:
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                leaf.is_on_host = True
        return result


def under_mps_rules(measure: Callable[..., Any]) -> tuple[Any, set[str]]:
    """Call it under the rules: what it returns, and the operations that it used."""
    to = torch.Tensor.to

    def watched_to(tensor: torch.Tensor, *arguments: Any, **named: Any) -> torch.Tensor:
        place = named.get("device", arguments[0] if arguments else None)
        moved = to(tensor, *arguments, **named)
        return _on_host(moved) if str(place) == "cpu" else moved

    with patch.object(torch.Tensor, "cpu", _on_host), patch.object(torch.Tensor, "to", watched_to), MpsRules() as rules:
        result = measure()
    return result, rules.seen
