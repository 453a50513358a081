"""What a model's size comes to, seen in one token's pass through its modules: no configuration's names are trusted.

The pass runs on the CPU and costs next to nothing: every weight is one number seen in the weight's shape, and products
with weights are not computed, only counted. What decides the way, such as the choice of experts, is computed.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache, PreTrainedModel

from specstudy.formulas import Dimensions

_aten = torch.ops.aten
# Where the two factors stand among an operator's arguments.
_FIRST_FACTOR: dict[Any, int] = {
    _aten.mm.default: 0,
    _aten.bmm.default: 0,
    _aten.addmm.default: 1,
    _aten.baddbmm.default: 1,
    _aten._grouped_mm.default: 0,
}
# How the names of the operators begin whose first argument has a row for each query head.
_BY_HEAD = ("_scaled_dot_product", "_softmax", "_safe_softmax")


@torch.inference_mode(False)  # where operators come undivided
@torch.no_grad()
def dimensions_of(module: PreTrainedModel) -> Dimensions:
    """Dimensions of a decoder, loaded or without weights. Raises whatever its own code raises."""
    stand_ins = {name: _stand_in(tensor) for name, tensor in (*module.named_parameters(), *module.named_buffers())}
    cache = DynamicCache(config=module.config)
    inputs = {"input_ids": torch.zeros(1, 1, dtype=torch.long), "cache": cache, "use_cache": True}
    with _Products(list(stand_ins.values())) as products:
        torch.func.functional_call(module, stand_ins, kwargs=inputs)
    kept = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values) if tensor is not None]
    embedding, head = module.get_input_embeddings().weight, module.get_output_embeddings().weight
    return Dimensions(
        n_layers=int(module.config.get_text_config(decoder=True).num_hidden_layers),
        n_heads=max(products.heads),
        output_rows=int(head.shape[0]),
        hidden_size=int(embedding.shape[1]),
        matmul_parameters=products.n_elements,
        key_value_elements=sum(tensor.numel() for tensor in kept),
        widest_product=products.widest,
        n_experts=products.n_experts,
        n_active_experts=products.n_active_experts,
        n_expert_layers=sum(name.endswith(".experts") for name, _ in module.named_modules()),
    )


def _stand_in(tensor: Tensor) -> Tensor:
    """A tensor of this shape that takes the memory of one number; a vector is whole, since frequencies that follow the
    text's length are written in place."""
    value = torch.ones((), dtype=tensor.dtype) if tensor.is_floating_point() else torch.zeros((), dtype=tensor.dtype)
    return value.expand(tensor.shape) if tensor.ndim > 1 else value.expand(tensor.shape).clone()


def _distinct(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Hidden states that no norm makes zero."""
    return torch.linspace(1, 2, shape[-1], dtype=dtype).expand(shape)


class _Products(TorchDispatchMode):
    """Counts the elements of matrices that a pass multiplies by. Attention's own products are not with weights."""

    def __init__(self, weights: list[Tensor]) -> None:
        super().__init__()
        self.n_elements = self.widest = self.n_experts = self.n_active_experts = 0
        self.heads: set[int] = set()
        self._storages = {w.untyped_storage()._cdata: w for w in weights if w.is_floating_point() and w.ndim > 1}

    def _is_weight(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._storages

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        place = _FIRST_FACTOR.get(operator)
        if place is not None:
            left, right = args[place : place + 2]
            if self._is_weight(right):
                return self._count(left, right)
            if self._is_weight(left):
                return self._count(right.mT, left.mT).mT
        if operator is _aten.embedding.default:
            return _distinct((*args[1].shape, args[0].shape[1]), args[0].dtype)
        if operator._schema.is_mutable and self._is_weight(args[0]):  # Gemma 3n bounds weights when it uses them
            return args[0]
        output = operator(*args, **(kwargs or {}))
        floats = [given for given in args if isinstance(given, Tensor) and given.is_floating_point()]
        # A weight that is cast, or of which a part is taken, is still a weight.
        if floats and all(map(self._is_weight, floats)):
            self._storages |= {made.untyped_storage()._cdata: made for made in [output] if isinstance(made, Tensor)}
        if operator.__name__.startswith(_BY_HEAD) and args[0].ndim > 2:
            self.heads.add(math.prod(args[0].shape[:-1]))
        return output

    def _count(self, left: Tensor, right: Tensor) -> Tensor:
        """Count a product, and give back something of its shape."""
        rows = (left != 0).any(-1, keepdim=True)
        # Where a family lets all experts run, those that were not chosen multiply zeros.
        n_rows = int(rows.sum()) if left.ndim == right.ndim == 3 else rows.numel()
        n_in, n_out = right.shape[-2:]
        if right.ndim == 3:
            self.n_experts, self.n_active_experts = max(self.n_experts, len(right)), max(self.n_active_experts, n_rows)
        if min(n_in, n_out) > 1:  # a single row, such as the gate of a shared expert, is a vector
            self.n_elements += n_rows * n_in * n_out
        self.widest = max(self.widest, n_rows * (n_in + n_out))
        return rows * _distinct((n_out,), left.dtype)
