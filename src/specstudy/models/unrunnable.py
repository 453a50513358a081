"""Model files that are there and yet cannot be run, each told in one line before anything is built or loaded."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

from specstudy.errors import UserError
from specstudy.models.sources import CONFIG, ModelSource
from specstudy.models.stored import stored_tensors

ADAPTER_CONFIG = "adapter_config.json"
LFS_POINTER = b"version https://git-lfs"
SMALL_FILES = ("*config*.json", "*token*", "vocab*", "merges.txt", "chat_template*", "*.index.json")
SPLIT_GGUF = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
NAME_ANOTHER = "name the model it was made of, or a GGUF file"
COUNTS_OF_LAYERS = re.compile(r"(num_(hidden_|decoder_)?|n_)layers?")
COUNTS_OF_EXPERTS = re.compile(r"(n_routed_|num_local_|(moe_)?num_)experts")
MOST_LAYERS_A_TENSOR = 16
"""Layers may share weights; but far more of them than tensors are no model, and never built."""
AT_LEAST_ONE = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size", "vocab_size")


def refuse_unless_runnable(source: ModelSource) -> None:
    """Raise UserError for pointers, parts, adapters, quantised weights and models that continue no text."""
    if source.gguf_file:
        _refuse_pointers(source, source.weight_files())
        if part := SPLIT_GGUF.search(source.gguf_file):
            number, total = map(int, part.groups())
            raise source.refused(f"it is part {number} of {total} of a GGUF; join them: llama-gguf-split --merge")
        return
    _refuse_pointers(source, (file for pattern in SMALL_FILES for file in sorted(source.directory.glob(pattern))))
    if (adapter := adapter_of(source.directory)) and not (source.directory / CONFIG).is_file():
        raise source.refused(f"it is {adapter}; merge it into that model first, and name the merged directory")
    _refuse_pointers(source, source.listed_weight_files())
    stated = stated_config(source)
    _refuse_kind(source, stated)
    _refuse_quantised(source, stated)
    _refuse_numbers(source, stated)


def adapter_of(directory: Path) -> str | None:
    """What adapter lies in a directory, or None."""
    if not (directory / ADAPTER_CONFIG).is_file():
        return None
    try:
        stated = json.loads((directory / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        stated = None
    stated = stated if isinstance(stated, dict) else {}
    kind = "LoRA" if stated.get("peft_type", "LORA") == "LORA" else stated["peft_type"]
    return f"a {kind} adapter of {stated.get('base_model_name_or_path') or 'a model that it does not name'}"


def stated_config(source: ModelSource) -> dict[str, Any]:
    """config.json as it stands. Raises UserError where there is none or it is damaged."""
    path = source.config_file()
    try:
        stated = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise source.refused(f"{path.name} is damaged ({error}); fetch it again") from error
    if not isinstance(stated, dict):
        raise source.refused(f"{path.name} is damaged (it holds no settings by name); fetch it again")
    return stated


def _refuse_pointers(source: ModelSource, files: Iterator[Path] | list[Path]) -> None:
    for file in files:
        if file.is_file():
            with file.open("rb") as opened:
                if opened.read(len(LFS_POINTER)) == LFS_POINTER:
                    raise source.refused(
                        f"{file.name} is a Git LFS pointer, not the file itself; "
                        f"`git lfs pull` in {source.directory} fetches it"
                    )


def _refuse_kind(source: ModelSource, stated: dict[str, Any]) -> None:
    """Refuse encoder-decoders, encoders, and whatever else the library can only run for another purpose."""
    kind = stated.get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        return  # old, or with code of its own: whoever reads the configuration says
    config_class = CONFIG_MAPPING[kind]
    if stated.get("is_encoder_decoder", config_class.is_encoder_decoder):
        raise _no_language_model(source, kind, ": it is an encoder-decoder")
    # Encoders can be built as decoders; only a setting says that they were trained as such.
    if config_class in MODEL_FOR_MASKED_LM_MAPPING and not (stated.get("is_decoder") or stated.get("causal")):
        raise _no_language_model(source, kind, ": it is an encoder")
    if config_class not in MODEL_FOR_CAUSAL_LM_MAPPING and not stated.get("auto_map"):
        raise _no_language_model(source, kind)


def _no_language_model(source: ModelSource, kind: str, why: str = "") -> UserError:
    return source.refused(f"{kind} is no causal language model{why}; choose a model that continues a text")


def _refuse_quantised(source: ModelSource, stated: dict[str, Any]) -> None:
    """Quantised weights mean nothing without their method, and none is run here but GGUF's, dequantised."""
    if mlx := stated.get("quantization"):
        bits = f" to {mlx['bits']} bits" if isinstance(mlx, dict) and "bits" in mlx else ""
        raise source.refused(f"its weights are quantised{bits} for MLX, which alone can read them; {NAME_ANOTHER}")
    for place in (stated, *(value for value in stated.values() if isinstance(value, dict))):
        if method := place.get("quantization_config") or place.get("compression_config"):
            name = method.get("quant_method") if isinstance(method, dict) else None
            raise source.refused(
                f"its weights are quantised with {name or 'a method that it does not name'}, "
                f"which is not run here; {NAME_ANOTHER}"
            )


def _refuse_numbers(source: ModelSource, stated: dict[str, Any]) -> None:
    stored = stored_tensors(source).values()
    n_numbers = sum(tensor.n_elements for tensor in stored)
    for name, value in ((name, stated.get(name)) for name in AT_LEAST_ONE):
        if isinstance(value, int) and value < 1:
            raise source.refused(f"{name} in its config.json is {value}, and has to be 1 or more")
    for name, value in _numbers(stated):
        if math.isnan(value):
            raise source.refused(f"{name} in its config.json is NaN, and so would be its logits")
        if COUNTS_OF_LAYERS.fullmatch(name) and value > MOST_LAYERS_A_TENSOR * len(stored):
            raise source.refused(f"its config.json says {name} {value:,}, but its files hold {len(stored):,} tensors")
        if COUNTS_OF_EXPERTS.fullmatch(name) and value > n_numbers:
            raise source.refused(f"its config.json says {name} {value:,}, but its files hold {n_numbers:,} numbers")


def _numbers(stated: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a configuration with its setting's name."""
    if isinstance(stated, dict):
        for key, value in stated.items():
            yield from _numbers(value, key)
    elif isinstance(stated, list):
        for value in stated:
            yield from _numbers(value, name)
    elif isinstance(stated, int | float) and not isinstance(stated, bool):
        yield name, stated
