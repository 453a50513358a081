"""What a step or a round found, brought to the host at once: each separate read would wait for the device again."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import torch
from torch import Tensor


def to_host(found: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """Tensors of at most one dimension as lists of floats, by the same names, in one transfer.

    It goes by way of float32, in which every id under 2^24 is exact.
    """
    values = iter(torch.cat([tensor.float() for tensor in found.values()]).tolist())
    return {name: list(islice(values, len(tensor))) for name, tensor in found.items()}
