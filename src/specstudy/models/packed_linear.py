"""Linear layers whose weights stand in oneDNN's own order: for inference on x86 CPUs.

torch keeps a weight row by row. For the few tokens of a decode step or a verifier pass oneDNN multiplies weights in its
own order in far less time, to the same values (`make bench name=packed_linear`). The two operators are torch's own but
not public: compiled models use them. Where they are missing, layers stay as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

DTYPES = (torch.bfloat16, torch.float32)
FEWEST_ROWS = 64
"""oneDNN fills up blocks of so many rows: a narrower weight would take more memory and more time."""


class PackedLinear(nn.Linear):
    """A linear layer whose weight is packed; for inference alone: it can be neither copied, cast nor saved."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__(plain.in_features, plain.out_features, bias=False, device="meta")
        self.weight = nn.Parameter(packed(plain.weight), requires_grad=False)
        self.bias = plain.bias

    def forward(self, input: Tensor) -> Tensor:
        """Hidden states [..., in_features] to [..., out_features]."""
        return product(input, self.weight, self.bias)

    def plain(self) -> nn.Linear:
        """The layer as it was."""
        layer = nn.Linear(self.in_features, self.out_features, bias=False, device="meta")
        layer.weight = nn.Parameter(self.weight.to_dense(), requires_grad=False)
        layer.bias = self.bias
        return layer


def pack_linear_layers(module: nn.Module) -> None:
    """Put a packed layer in the place of every plain one. Other matrices (experts, embeddings) stay as they are."""
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Linear and child.weight.dtype in DTYPES and len(child.weight) >= FEWEST_ROWS:
                setattr(parent, name, PackedLinear(child))


def unpack_linear_layers(module: nn.Module) -> None:
    """Take back what pack_linear_layers did."""
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if isinstance(child, PackedLinear):
                setattr(parent, name, child.plain())


def packed(weight: Tensor) -> Tensor:
    """A weight [out, in] in oneDNN's order. It takes the same memory, but for the last block of rows."""
    reordered: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
    return reordered


def product(hidden: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """hidden [..., in] times a weight [out, in], packed or plain, plus a bias."""
    if weight.is_mkldnn:
        output: Tensor = torch.ops.mkldnn._linear_pointwise(hidden, weight, bias, "none", [], "")
        return output
    return nn.functional.linear(hidden, weight, bias)
