"""GGUF files of tiny random models, written as llama.cpp's converter writes them, and the same models beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from small_tokenizers import CHATML, CHATML_MARKS
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

N_LAYERS = 3
N_TOKENS = 259
TOKENS = [*sorted(ByteLevel.alphabet()), "th", *CHATML_MARKS]
KINDS = [gguf.TokenType.NORMAL] * 257 + [gguf.TokenType.CONTROL] * 2
TOKENIZER: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "qwen2",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [int(kind) for kind in KINDS],
    "tokenizer.ggml.merges": ["t h"],
    "tokenizer.ggml.eos_token_id": 258,
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.chat_template": CHATML,
}
PERMUTED = {"llama", "granite"}
ONE_ADDED_TO_NORMS = {"gemma", "gemma2", "gemma3", "nemotron"}


def random_model(model_type: str, **settings: Any) -> PreTrainedModel:
    """A float32 model, every weight of it random: norms and biases too."""
    common = {"vocab_size": N_TOKENS, "num_hidden_layers": N_LAYERS, "pad_token_id": 0}
    config = AutoConfig.for_model(model_type, **common, **settings)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    for weight in model.parameters():
        weight.normal_(std=0.3)
    return model


def tensors_of(model: PreTrainedModel, architecture: str) -> dict[str, NDArray[np.float32]]:
    """The weights under their names in a GGUF file, changed as the converter of this architecture changes them."""
    kind = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, N_LAYERS)
    tensors = {}
    for weight, tensor in model.state_dict().items():
        if weight == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        value = tensor.numpy()
        if weight.endswith("experts.gate_up_proj"):
            block = f"blk.{weight.split('.')[2]}"
            gate, up = np.split(value, 2, axis=1)
            tensors |= {f"{block}.ffn_gate_exps.weight": gate, f"{block}.ffn_up_exps.weight": up}
            continue
        name = names.get_name(weight, (".weight", ".bias"))
        assert name is not None, weight
        name += "" if name.endswith((".weight", ".bias")) else ".weight"
        if architecture in PERMUTED and ("attn_q." in name or "attn_k." in name):
            config = model.config
            n_heads = config.num_attention_heads if "attn_q." in name else config.num_key_value_heads
            value = value.reshape(n_heads, 2, -1, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
        if architecture in ONE_ADDED_TO_NORMS and name.endswith("norm.weight"):
            value = value + 1
        if architecture == "gpt2" and name.startswith("blk.") and value.ndim == 2:
            value = value.T
        tensors[name] = value.reshape(-1) if "ffn_gate_inp_shexp" in name else value
    return tensors


def write(
    path: Path,
    architecture: str,
    keys: Mapping[str, Any],
    tensors: Mapping[str, NDArray[np.float32]],
    quantisation: gguf.GGMLQuantizationType | None = None,
    raw: Mapping[str, tuple[NDArray[np.uint8], gguf.GGMLQuantizationType]] | None = None,
) -> Path:
    """A file with these keys (a leading `.` stands for the architecture); matrices quantised if that is asked for, and
    `raw` blocks as they are."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in keys.items():
        name = architecture + key if key.startswith(".") else key
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_array(name, value)
    for name, tensor in tensors.items():
        value = np.ascontiguousarray(tensor)
        if quantisation is not None and value.ndim == 2:
            writer.add_tensor(name, gguf.quantize(value, quantisation), raw_dtype=quantisation)
        else:
            writer.add_tensor(name, value)
    for name, (blocks, kind) in (raw or {}).items():
        writer.add_tensor(name, blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
