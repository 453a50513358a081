"""What the weight files hold against what the model takes of them, told by the headers of the files alone.

transformers renames, splits and joins tensors while it loads, and passes over those that it has no use for. So it is
asked itself: it loads a model without memory from tensors that note who is read.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specstudy.models.sources import WEIGHTS, WEIGHTS_INDEX, ModelSource
from specstudy.models.stored import Stored, same_values, stored_tensors
from specstudy.models.unrunnable import NAME_ANOTHER, adapter_of

FLOATS = ("F64", "F32", "F16", "BF16")
BUFFERS = re.compile(r"(^|[._])(inv_freq|cos_cached|sin_cached|position_ids|masked_bias)$")
"""What older versions saved though it follows from the configuration."""
MASK = re.compile(r"(^|[._])(bias|mask)$")
"""A causal mask of [1, 1, context, context] was saved under such a name."""
UNUSED_PARTS = {
    "its head for several tokens at once": re.compile(r"(^|\.)mtp\w*\."),
    "its part for images or sound": re.compile(
        r"(^|\.)(visual|vision\w*|audio\w*|image\w*|embed_vision|embed_audio|multi_modal\w*|mm_\w+)(\.|$)"
    ),
}


class _Watched:
    """Stands for a stored tensor while a model is loaded without memory; notes its name where it is read."""

    def __init__(self, name: str, shape: tuple[int, ...], read: set[str]) -> None:
        self._name, self._shape, self._read = name, shape, read

    def __getitem__(self, index: Any) -> Tensor:
        self._read.add(self._name)
        return torch.empty(self._shape, device="meta")


def refuse_unless_whole(source: ModelSource) -> tuple[str, ...]:
    """What of a safetensors directory is not measured, in words. Raises UserError for weights that the model lacks,
    that it does not take or that have another shape or meaning than it gives them."""
    stored = stored_tensors(source)
    module = source.without_weights()
    read: set[str] = set()
    watched: dict[str, Any] = {name: _Watched(name, tensor.shape, read) for name, tensor in stored.items()}
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # of the bars that transformers draws, one cannot be turned off
            _, loading = type(module).from_pretrained(
                None,
                config=module.config,
                state_dict=watched,
                device_map="meta",
                dtype=torch.float32,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    except Exception as error:  # whatever the names and shapes of foreign tensors make the library raise
        raise source.refused(f"its weights do not fit its config.json ({error})") from error
    _refuse_codes(source, module, {name: stored[name] for name in sorted(read)})
    lost, notes = _not_read(module, {name: stored[name] for name in sorted(stored.keys() - read)})
    _refuse_difference(source, module, sorted(loading["missing_keys"]), lost)
    for name, found, wanted in sorted(loading["mismatched_keys"]):
        raise source.refused(f"{name} is {list(found)} in its files, but {list(wanted)} by its config.json")
    _refuse_untied(source, module, {name: stored[name] for name in read})
    return (*notes, *_beside(source))


def _refuse_codes(source: ModelSource, module: PreTrainedModel, read: dict[str, Stored]) -> None:
    """Refuse numbers that only stand for weights, except in a buffer that is to have them."""
    integers = {name.rpartition(".")[2] for name, value in module.state_dict().items() if not value.is_floating_point()}
    for name, tensor in read.items():
        if tensor.dtype not in FLOATS and name.rpartition(".")[2] not in integers:
            raise source.refused(
                f"{name} is stored as {tensor.dtype}: quantised, and its config.json does not say how; {NAME_ANOTHER}"
            )


def _refuse_difference(source: ModelSource, module: PreTrainedModel, lacking: Sequence[str], lost: list[str]) -> None:
    parts = []
    if lacking:
        parts.append(f"its files lack {len(lacking)} of its weights, the first {lacking[0]}")
    if lost:
        parts.append(
            f"its files hold {len(lost)} tensors that {type(module).__name__} by its config.json does not take, "
            f"the first {lost[0]}"
        )
    if parts:
        raise source.refused("; ".join(parts))


def _not_read(module: PreTrainedModel, unread: dict[str, Stored]) -> tuple[list[str], list[str]]:
    """Of the tensors that the model does not take the lost ones, and words for those that it has no use for."""
    passed_over = [re.compile(pattern) for pattern in module._keys_to_ignore_on_load_unexpected or ()]
    beyond = _layers_beyond(module)
    lost: list[str] = []
    parts: dict[str, list[str]] = {}
    for name, tensor in unread.items():
        if BUFFERS.search(name) or (MASK.search(name) and _is_square_mask(tensor)):
            continue
        part = next((part for part, names in (*beyond.items(), *UNUSED_PARTS.items()) if names.search(name)), None)
        # Patterns like attn.bias are meant for masks but match c_attn.bias too: no bias is passed over.
        if part is None and not name.endswith("bias") and any(pattern.search(name) for pattern in passed_over):
            part = f"what {type(module).__name__} has no use for"
        if part is None:
            lost.append(name)
        else:
            parts.setdefault(part, []).append(name)
    return lost, [f"{part} ({len(names)} tensors, such as {names[0]}) is not measured" for part, names in parts.items()]


def _is_square_mask(tensor: Stored) -> bool:
    return len(tensor.shape) == 4 and tensor.shape[:2] == (1, 1) and tensor.shape[2] == tensor.shape[3]


def _layers_beyond(module: PreTrainedModel) -> dict[str, re.Pattern[str]]:
    """Names of the layers behind the last one that predict a token further on, where the configuration has such."""
    config = module.config.get_text_config(decoder=True)
    n_beyond = getattr(config, "num_nextn_predict_layers", None) or 0
    if not n_beyond:
        return {}
    numbers = "|".join(str(config.num_hidden_layers + i) for i in range(min(int(n_beyond), 100)))
    return {next(iter(UNUSED_PARTS)): re.compile(rf"(^|\.)layers\.({numbers})\.")}


def _refuse_untied(source: ModelSource, module: PreTrainedModel, read: dict[str, Stored]) -> None:
    """Refuse two sets of values for weights that are one by the configuration: no runtime could know which is meant."""
    for names in module.all_tied_weights_keys.items():
        target, tied_to = (_name_in_files(name, module, read) for name in names)
        if target in read and tied_to in read and not same_values(read[target], target, read[tied_to], tied_to):
            raise source.refused(
                f"its config.json ties {target} to {tied_to}, but its files hold different values of them; "
                "tie_word_embeddings is wrong, or the weights are"
            )


def _name_in_files(name: str, module: PreTrainedModel, stored: dict[str, Stored]) -> str:
    """The trunk alone is saved without the prefix that it has in the whole model."""
    return name if name in stored else name.removeprefix(f"{module.base_model_prefix}.")


def _beside(source: ModelSource) -> list[str]:
    """What lies beside the weights and takes no part."""
    notes = []
    if adapter := adapter_of(source.directory):
        notes.append(f"{adapter} lies beside the weights and is not applied")
    if (source.directory / WEIGHTS).is_file() and (source.directory / WEIGHTS_INDEX).is_file():
        notes.append(f"{WEIGHTS} is read, and not what {WEIGHTS_INDEX} lists")
    return notes
