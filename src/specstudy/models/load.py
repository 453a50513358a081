"""Verifier and draft: found by name, loaded without executing anybody's code, checked to speak the same tokens."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import HTTPError
from huggingface_hub.utils import get_session
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, DynamicCache, GgufConfig, PreTrainedTokenizerBase
from transformers.cache_utils import LinearAttentionCacheLayerMixin

from specstudy.errors import UserError
from specstudy.formulas import Dimensions
from specstudy.models import device as devices
from specstudy.models import embedded, shallow

EMBEDDED = "embedded:smollm2"
EMBEDDED_NAME = "SmolLM2-135M-Instruct"
RECURRENT_FAMILIES = ("mamba", "rwkv", "recurrent_gemma", "xlstm")


@dataclass(frozen=True)
class LanguageModel:
    """A loaded model with what measurements need to know of it.

    `vocabulary` is one more than the largest id of the tokenizer: logits beyond it are padding and are cut off, and
    `unused_ids` below it stand for nothing.
    """

    name: str
    module: nn.Module
    vocabulary: int
    unused_ids: Tensor | None
    dimensions: Dimensions
    fingerprint: str
    note: str
    stored_generation_settings: dict[str, Any]

    @property
    def device(self) -> torch.device:
        return self.module.get_input_embeddings().weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.module.get_input_embeddings().weight.dtype

    @property
    def n_emittable(self) -> int:
        """Number of ids that the tokenizer can emit."""
        return self.vocabulary - (0 if self.unused_ids is None else len(self.unused_ids))

    @property
    def context_length(self) -> int | None:
        """Longest sequence that the configuration promises, or None if it says nothing."""
        config = self.module.config.get_text_config(decoder=True)
        return getattr(config, "max_position_embeddings", None)

    def emittable_logits(self, logits: Tensor) -> Tensor:
        """Logits [..., padded vocabulary] as float32 [..., vocabulary], -inf where no token has the id."""
        logits = logits[..., : self.vocabulary].float()
        if self.unused_ids is not None:
            logits = logits.index_fill(-1, self.unused_ids, -torch.inf)
        return logits


@dataclass(frozen=True)
class Pair:
    """Verifier, draft and their common tokenizer; `eos_ids` end a text."""

    verifier: LanguageModel
    draft: LanguageModel
    tokenizer: PreTrainedTokenizerBase
    eos_ids: tuple[int, ...]


def load_pair(
    verifier_name: str, draft_name: str, device: torch.device, dtype: torch.dtype, trust_remote_code: bool = False
) -> Pair:
    """Load both models. Raises UserError in one line for anything missing, unfit or not matching."""
    source = _source(verifier_name, "models.verifier", trust_remote_code)
    tokenizer = source.tokenizer()
    verifier = _load(source, tokenizer, device, dtype)
    draft_directory = Path(draft_name).expanduser()
    if shallow.is_shallow_draft(draft_directory):
        draft = _load_shallow(draft_directory, draft_name, verifier, tokenizer)
    else:
        draft_source = _source(draft_name, "models.draft", trust_remote_code)
        check_same_tokens(tokenizer, draft_source.tokenizer(), verifier_name, draft_name)
        draft = _load(draft_source, tokenizer, device, dtype)
    return Pair(verifier, draft, tokenizer, _eos_ids(verifier.module, tokenizer))


def check_same_tokens(
    verifier: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase, verifier_name: str, draft_name: str
) -> None:
    """Raise UserError naming the first id that stands for different tokens in the two models."""
    ours, theirs = ({i: token for token, i in t.get_vocab().items()} for t in (verifier, draft))
    for token_id in sorted(ours.keys() | theirs.keys()):
        if ours.get(token_id) != theirs.get(token_id):
            raise UserError(
                f"models.draft={draft_name} does not share the tokens of models.verifier={verifier_name}: "
                f"id {token_id} is {ours.get(token_id)!r} there and {theirs.get(token_id)!r} here; "
                "name two models of one tokenizer"
            )


@dataclass(frozen=True)
class _Source:
    """Where a model comes from: a directory, or a GGUF file in one."""

    name: str
    key: str
    location: str
    gguf_file: str | None
    trust_remote_code: bool

    @property
    def arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {"trust_remote_code": self.trust_remote_code}
        return arguments | ({"gguf_file": self.gguf_file} if self.gguf_file else {})

    def tokenizer(self) -> PreTrainedTokenizerBase:
        try:
            return AutoTokenizer.from_pretrained(self.location, **self.arguments)
        except (OSError, ValueError, KeyError) as error:
            raise self.unusable(error) from error

    def unusable(self, error: Exception) -> UserError:
        return UserError(f"{self.key}={self.name} cannot be loaded: {' '.join(str(error).split())[:300]}")


def _source(name: str, key: str, trust_remote_code: bool) -> _Source:
    if name == EMBEDDED:
        return _Source(name, key, str(embedded.ensure_embedded_verifier()), None, trust_remote_code)
    path = Path(name).expanduser()
    if path.is_file():
        if path.suffix != ".gguf":
            raise UserError(f"{key}={name} is a file but not a .gguf; name a model directory, a GGUF file or a Hub id")
        return _Source(name, key, str(path.parent), path.name, trust_remote_code)
    if path.is_dir():
        return _Source(name, key, str(path), None, trust_remote_code)
    if (name.startswith((".", "/", "~")) or name.count("/") > 1 or name.endswith(".gguf")):
        raise UserError(f"{key}={name}: no such directory or file; name a model directory, a GGUF file or a Hub id")
    return _Source(name, key, _snapshot(name, key), None, trust_remote_code)


def _snapshot(name: str, key: str) -> str:
    """Local directory of a Hub id, from the Hub's own cache or fetched now; without a network it fails at once."""
    wanted = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.py"]
    with contextlib.suppress(OSError, ValueError):
        return snapshot_download(name, allow_patterns=wanted, local_files_only=True)
    try:
        get_session().head(f"{constants.ENDPOINT}/api/models/{name}", timeout=10).raise_for_status()
        return snapshot_download(name, allow_patterns=wanted)
    except (OSError, ValueError, HTTPError) as error:
        raise UserError(
            f"{key}={name}: no such directory or GGUF file, and the Hub does not have it or cannot be reached; "
            f"where there is a network, `hf download {name}` fetches it, or name a local directory"
        ) from error


def _load(source: _Source, tokenizer: PreTrainedTokenizerBase, device: torch.device, dtype: torch.dtype) -> LanguageModel:
    try:
        config = AutoConfig.from_pretrained(source.location, **source.arguments)
        refuse_recurrent_layers(config, source.key, source.name)
        quantization = {"quantization_config": GgufConfig(dequantize=True)} if source.gguf_file else {}
        module = AutoModelForCausalLM.from_pretrained(
            source.location, dtype=dtype, use_safetensors=None if source.gguf_file else True, **quantization,
            **source.arguments,
        )
    except (OSError, ValueError, KeyError) as error:
        raise source.unusable(error) from error
    module = module.to(device).eval().requires_grad_(False)
    vocabulary, unused = _emittable_ids(tokenizer, module)
    return LanguageModel(
        name=EMBEDDED_NAME if source.name == EMBEDDED else source.name,
        module=module,
        vocabulary=vocabulary,
        unused_ids=unused,
        dimensions=dimensions_of(module),
        fingerprint=fingerprint_of(module),
        note=embedded.NOTE if source.name == EMBEDDED else "GGUF, dequantised" if source.gguf_file else "",
        stored_generation_settings=module.generation_config.to_diff_dict(),
    )


def _load_shallow(
    directory: Path, name: str, verifier: LanguageModel, tokenizer: PreTrainedTokenizerBase
) -> LanguageModel:
    module = shallow.load_shallow_draft(directory, verifier.module, verifier.fingerprint).requires_grad_(False)
    vocabulary, unused = _emittable_ids(tokenizer, module)
    card = json.loads((directory / shallow.CARD).read_text(encoding="utf-8"))
    return LanguageModel(
        name=Path(name).name,
        module=module,
        vocabulary=vocabulary,
        unused_ids=unused,
        dimensions=dimensions_of(module),
        fingerprint=hashlib.sha256((directory / shallow.WEIGHTS).read_bytes()).hexdigest(),
        note=f"{card['n_layers']} layers distilled from {card['verifier']}",
        stored_generation_settings={},
    )


def refuse_recurrent_layers(config: Any, key: str, name: str) -> None:
    """Raise UserError, before weights load, for a model whose state cannot be rolled back after a rejection."""
    text = config.get_text_config(decoder=True)
    family = next((f for f in RECURRENT_FAMILIES if f in str(config.model_type).lower()), None)
    if family is None:
        layers = DynamicCache(config=config).layers
        recurrent = [i for i, layer in enumerate(layers) if isinstance(layer, LinearAttentionCacheLayerMixin)]
        if not recurrent:
            return
        types = getattr(text, "layer_types", None)
        family = types[recurrent[0]] if types else "linear_attention"
    raise UserError(
        f"{key}={name}: layers of type {family} keep a running state that cannot be taken back after a rejected token; "
        "choose a model with attention layers only"
    )


def _emittable_ids(tokenizer: PreTrainedTokenizerBase, module: nn.Module) -> tuple[int, Tensor | None]:
    """One more than the largest id of the tokenizer, and the ids below it that stand for nothing."""
    ids = set(tokenizer.get_vocab().values())
    vocabulary = max(ids) + 1
    rows = module.config.get_text_config(decoder=True).vocab_size
    if rows < vocabulary:
        raise UserError(f"the model has {rows} output rows but its tokenizer emits ids up to {vocabulary - 1}")
    unused = sorted(set(range(vocabulary)) - ids)
    device = module.get_input_embeddings().weight.device
    return vocabulary, torch.tensor(unused, device=device) if unused else None


def _eos_ids(module: nn.Module, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Every id that the model's files or the tokenizer say ends a text."""
    found: set[int] = set()
    for stated in (module.generation_config.eos_token_id, module.config.eos_token_id, tokenizer.eos_token_id):
        found |= set(stated) if isinstance(stated, list) else {stated}
    return tuple(sorted(i for i in found if i is not None))


def fingerprint_of(module: nn.Module) -> str:
    """sha256 over names, shapes, dtypes and bytes of all weights, as loaded."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def dimensions_of(module: nn.Module) -> Dimensions:
    """What decides the FLOPs, read from the configuration under its usual names."""
    config = module.config.get_text_config(decoder=True)
    hidden, heads = int(config.hidden_size), int(config.num_attention_heads)
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None) or 0
    head = module.get_output_embeddings()
    gated = any("gate" in name for name, _ in module.named_modules())
    intermediate = getattr(config, "moe_intermediate_size", None) if experts else None
    intermediate = intermediate or getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None)
    return Dimensions(
        n_layers=int(config.num_hidden_layers),
        hidden_size=hidden,
        n_heads=heads,
        n_kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
        head_dim=int(getattr(config, "head_dim", None) or hidden // heads),
        intermediate_size=int(intermediate or 4 * hidden),
        output_rows=int(head.weight.shape[0]),
        mlp_matrices=3 if gated else 2,
        n_experts=int(experts),
        n_active_experts=int(getattr(config, "num_experts_per_tok", None) or 0),
    )
