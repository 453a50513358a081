"""Linear layers whose weights stand in oneDNN's own order: for inference on x86 CPUs in bfloat16.

torch keeps a weight row by row. For the few tokens of a decode step or a verifier pass oneDNN multiplies weights in its
own order up to four times as fast. The values are the same. The two operators are torch's own but not public: compiled
models use them. Where they are missing, layers stay as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PackedLinear(nn.Linear):
    """A linear layer with a packed weight: it counts like a plain one, and `to_dense()` gives its values back."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__(plain.in_features, plain.out_features, bias=False, device="meta")
        self.weight = nn.Parameter(packed(plain.weight), requires_grad=False)
        self.bias = plain.bias

    def forward(self, input: Tensor) -> Tensor:
        """Hidden states [..., in_features] to [..., out_features]."""
        return product(input, self.weight, self.bias)


def pack_linear_layers(module: nn.Module) -> None:
    """Put a packed layer in the place of every plain one. Other matrices (experts, embeddings) stay as they are."""
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Linear and child.weight.dtype == torch.bfloat16:
                setattr(parent, name, PackedLinear(child))


def packed(weight: Tensor) -> Tensor:
    """A weight [out, in] in oneDNN's order. It takes the same memory."""
    reordered: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
    return reordered


def product(hidden: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """hidden [..., in] times a weight [out, in], packed or plain, plus a bias."""
    if weight.is_mkldnn:
        output: Tensor = torch.ops.mkldnn._linear_pointwise(hidden, weight, bias, "none", [], "")
        return output
    return nn.functional.linear(hidden, weight, bias)
