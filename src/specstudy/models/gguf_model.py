"""A model from a GGUF file: every key and every tensor of the file is used, known to mean nothing, or refused by name.

The library's own reader takes a fixed list and drops the rest without a word: frequencies, caps, ends of a turn.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import MODEL_ARCH_NAMES, ReaderTensor, dequantize, get_tensor_name_map
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from specstudy.models.gguf_families import Array, Family, Restore, configuration_fields
from specstudy.models.gguf_header import GgufHeader
from specstudy.models.gguf_tokenizer import special_ids, tokenizer_of


@dataclass(frozen=True)
class GgufModel:
    """A file that can be measured as itself. `sources`: for each weight of the model the tensors that it is made of."""

    header: GgufHeader
    family: Family
    configuration: PreTrainedConfig
    tokenizer: PreTrainedTokenizerFast
    sources: dict[str, list[str]]

    def config(self) -> PreTrainedConfig:
        """A configuration of the caller's own."""
        return copy.deepcopy(self.configuration)

    def load(self, dtype: torch.dtype) -> tuple[PreTrainedModel, dict[str, Any]]:
        """The model, its weights dequantised, and transformers' report on loading. Raises ValueError for a tensor of
        another shape."""
        weights = {}
        for name, sources in self.sources.items():
            parts = [self._values(self.header.tensors[source]) for source in sources]
            value = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
            weights[name] = torch.from_numpy(np.array(value, order="C")).to(dtype)
        loaded: tuple[PreTrainedModel, dict[str, Any]] = _empty(self.config()).__class__.from_pretrained(
            None, config=self.config(), state_dict=weights, dtype=dtype, output_loading_info=True
        )
        return loaded

    def description(self) -> dict[str, Any]:
        """What the conversion made of the file, for people to compare with what they know of the model."""
        config = self.configuration
        fields = {
            "rope": "rope_parameters",
            "sliding_window": "sliding_window",
            "attention_soft_cap": "attn_logit_softcapping",
            "final_soft_cap": "final_logit_softcapping",
            "query_scale_of_width": "query_pre_attn_scalar",
            "attention_multiplier": "attention_multiplier",
            "logit_scale": "logit_scale",
            "eos_token_ids": "eos_token_id",
        }
        types = {tensor.tensor_type.name for tensor in self.header.tensors.values()}
        return {
            "family": self.header.architecture,
            **{name: getattr(config, field, None) for name, field in fields.items()},
            "cuts_text_as": self.header.get("tokenizer.ggml.pre"),
            "tensor_types": sorted(types),
        }

    def _values(self, tensor: ReaderTensor) -> Array:
        return self.family.restore(tensor.name, dequantize(tensor.data, tensor.tensor_type), self.configuration)


def read_gguf(path: Path) -> GgufModel:
    """A file with everything in it accounted for; no weights are read. Raises ValueError, one line that names a key or
    tensor, for what would be dropped or cannot be applied."""
    state = path.stat()
    return _read(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4)
def _read(path: Path, modified_ns: int, n_bytes: int) -> GgufModel:
    header = GgufHeader(path)
    family, fields = configuration_fields(header)
    n_rows = int(header.tensor("token_embd.weight").shape[1])
    header.expect(".vocab_size", n_rows)
    tokenizer = tokenizer_of(header)
    if len(header.get("tokenizer.ggml.tokens")) != n_rows:
        raise ValueError(f"its tokens are not the {n_rows} rows of token_embd.weight")
    config = AutoConfig.for_model(family.model_type, vocab_size=n_rows, **fields, **special_ids(header))
    sources = _sources(header, config, family.restore)
    if keys := header.leftover():
        raise ValueError(f"what its key {keys[0]} says would be lost ({len(keys)} such keys: {', '.join(keys[:4])})")
    _refuse_unreadable_types(header)
    return GgufModel(header, family, config, tokenizer, sources)


def _empty(config: PreTrainedConfig) -> PreTrainedModel:
    with torch.device("meta"):
        module: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return module


def _sources(header: GgufHeader, config: PreTrainedConfig, restore: Restore) -> dict[str, list[str]]:
    """Tensors of each weight. Raises ValueError for a weight without a tensor, or a tensor that is no weight."""
    architecture = next(key for key, name in MODEL_ARCH_NAMES.items() if name == header.architecture)
    names = get_tensor_name_map(architecture, config.num_hidden_layers)
    sources = {}
    shapes = {}
    for weight, value in _empty(config).state_dict().items():
        if weight == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if weight.endswith("mlp.experts.gate_up_proj"):
            block = f"blk.{weight.split('.')[2]}"
            sources[weight] = [f"{block}.ffn_gate_exps.weight", f"{block}.ffn_up_exps.weight"]
        elif weight == "lm_head.weight":
            sources[weight] = ["output.weight"]
        else:
            name = names.get_name(weight, try_suffixes=(".weight", ".bias")) or weight
            sources[weight] = [name if name.endswith((".weight", ".bias")) else f"{name}.weight"]
        shapes[weight] = tuple(value.shape)
    wanted = {source for group in sources.values() for source in group}
    if absent := sorted(wanted - header.tensors.keys()):
        raise ValueError(f"it lacks {len(absent)} of its tensors, the first {absent[0]}")
    if lost := sorted(header.tensors.keys() - wanted - header.used_tensors):
        raise ValueError(f"its tensor {lost[0]} has no place in the model ({len(lost)} such tensors)")
    for weight, group in sources.items():
        if _restored_shape([header.tensors[source] for source in group], config, restore) != shapes[weight]:
            raise ValueError(f"its tensor {group[0]} has another shape than its keys say")
    return sources


def _restored_shape(parts: list[ReaderTensor], config: PreTrainedConfig, restore: Restore) -> tuple[int, ...] | None:
    """Shape of the weight that these tensors are made into, or None where they cannot be."""
    try:
        zeros = [np.broadcast_to(np.float32(0), [int(n) for n in reversed(part.shape)]) for part in parts]
        first, *others = (restore(part.name, value, config).shape for part, value in zip(parts, zeros, strict=True))
        return (first[0], first[1] + sum(shape[1] for shape in others), *first[2:]) if others else first
    except (IndexError, ValueError):
        return None


def _refuse_unreadable_types(header: GgufHeader) -> None:
    """Raise ValueError for a quantisation that cannot be undone, before any long work."""
    for kind, tensor in {tensor.tensor_type: tensor for tensor in header.tensors.values()}.items():
        try:
            dequantize(tensor.data[:1], kind)
        except (NotImplementedError, KeyError) as error:
            raise ValueError(
                f"the quantisation {kind.name} of its tensor {tensor.name} cannot be undone here"
            ) from error
