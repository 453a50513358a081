"""What a step or a round found, brought to the host at once: each separate read would wait for the device again."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import torch
from torch import Tensor


def to_host(found: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """Tensors [n], each of its own n, as lists of floats by the same names, in one transfer.

    It goes by way of float32, in which every id under 2^24 is exact.
    """
    return rows_to_host({name: tensor[None] for name, tensor in found.items()})[0]


def rows_to_host(found: Mapping[str, Tensor]) -> list[dict[str, list[float]]]:
    """Tensors [R] or [R, n], each of its own n, as what `to_host` gives for each of the R rows, in one transfer."""
    columns = {
        name: tensor.float().flatten(1) if tensor.dim() > 1 else tensor.float()[:, None]
        for name, tensor in found.items()
    }
    rows = torch.cat([*columns.values()], dim=-1).tolist()
    return [_by_name(row, {name: column.shape[1] for name, column in columns.items()}) for row in rows]


def _by_name(values: list[float], lengths: Mapping[str, int]) -> dict[str, list[float]]:
    remaining = iter(values)
    return {name: list(islice(remaining, length)) for name, length in lengths.items()}
