"""Verifier and draft: loaded without executing anybody's code, checked to be whole and to speak the same tokens."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from specstudy.errors import UserError
from specstudy.formulas import Dimensions
from specstudy.models import embedded, shallow, upcycled
from specstudy.models.attention_functions import use_grouped_attention
from specstudy.models.checkpoint import refuse_unless_whole
from specstudy.models.context import context_length
from specstudy.models.device import device_memory, is_out_of_memory, multiplies_packed_weights, out_of_memory_line
from specstudy.models.dimensions import dimensions_of
from specstudy.models.fingerprint import fingerprint_of, tokenizer_digest
from specstudy.models.packed_linear import PackedLinear, pack_linear_layers, unpack_linear_layers
from specstudy.models.rollback import refuse_class, refuse_unless_tokens_can_be_taken_back
from specstudy.models.rotary import constant_frequencies
from specstudy.models.sources import ModelSource, existing_path, find_source, trunk_of
from specstudy.models.stored import least_weight_bytes
from specstudy.models.unrunnable import ADAPTER_CONFIG, refuse_unless_runnable


@dataclass(frozen=True)
class LanguageModel:
    """A loaded model with what measurements need to know of it.

    `vocabulary` is one more than the largest id of the tokenizer: logits beyond it are padding and are cut off, and
    `unused_ids` below it stand for nothing. `fingerprint` tells its weights, whatever precision they run in;
    `conversion` what was made of a GGUF file's header.
    """

    name: str
    module: PreTrainedModel
    vocabulary: int
    unused_ids: Tensor | None
    dimensions: Dimensions
    fingerprint: str
    note: str
    stored_generation_settings: dict[str, Any]
    conversion: dict[str, Any] | None = None

    @property
    def device(self) -> torch.device:
        device: torch.device = self.module.get_input_embeddings().weight.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.module.get_input_embeddings().weight.dtype
        return dtype

    @property
    def attention(self) -> str:
        """Name of the attention implementation in force."""
        name: str = self.module.config._attn_implementation
        return name

    @property
    def linear_layers(self) -> str:
        """How the weights of its linear layers stand in memory: packed or plain."""
        return "packed" if any(isinstance(part, PackedLinear) for part in self.module.modules()) else "plain"

    @property
    def n_emittable(self) -> int:
        """Number of ids that the tokenizer can emit."""
        return self.vocabulary - (0 if self.unused_ids is None else len(self.unused_ids))

    def head_ids(self) -> Tensor | None:
        """Ids [K], ascending, that an output head over few ids can give; None for a head over all, or over one."""
        head = self.module.get_output_embeddings()
        if not isinstance(head, shallow.FrequentIdsHead):
            return None
        ids = head.ids[head.ids < self.vocabulary].sort().values
        if self.unused_ids is not None:
            ids = ids[~torch.isin(ids, self.unused_ids)]
        return ids if len(ids) > 1 else None

    @property
    def context_length(self) -> int | None:
        """Longest sequence that the model takes, or None if nothing bounds it."""
        return context_length(self.module)

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

    @property
    def context_length(self) -> int | None:
        """Longest sequence that both models take, with the same rotary frequencies throughout; None if nothing says."""
        models = (self.verifier, self.draft)
        limits = [(model.context_length, constant_frequencies(model.module.config)) for model in models]
        return min(filter(None, (limit for both in limits for limit in both)), default=None)

    @cached_property
    def tokenizer_digest(self) -> str:
        """What the tokenizer makes of ids and texts, as a hash."""
        return tokenizer_digest(self.tokenizer)


@dataclass(frozen=True)
class PairSources:
    """Where a pair comes from, seen to be there, whole and of one tokenizer. A shallow draft is its directory."""

    verifier: ModelSource
    draft: ModelSource | Path
    tokenizer: PreTrainedTokenizerBase

    @property
    def models(self) -> list[ModelSource]:
        """Those that are whole models of their own."""
        return [model for model in (self.verifier, self.draft) if isinstance(model, ModelSource)]

    @property
    def notes(self) -> list[str]:
        """What of the files is not measured, a line each."""
        return [f"{model.key}={model.name}: {note}" for model in self.models for note in model.notes]


def find_pair(verifier_name: str, draft_name: str, trust_remote_code: bool = False) -> PairSources:
    """Find both models, without loading weights. Raises UserError for all that small files can tell."""
    verifier, tokenizer = _checked(find_source(verifier_name, "models.verifier", trust_remote_code))
    directory = existing_path(draft_name)
    if directory and shallow.is_shallow_draft(directory):
        shallow.read_card(directory)
        return PairSources(verifier, directory, tokenizer)
    draft, draft_tokenizer = _checked(find_source(draft_name, "models.draft", trust_remote_code))
    _check_same_tokens(verifier, tokenizer, draft, draft_tokenizer)
    return PairSources(verifier, draft, tokenizer)


def refuse_unless_weights_fit(sources: PairSources, device: torch.device, dtype: torch.dtype) -> None:
    """Raise UserError where a device has less memory than the weights alone need."""
    needed_bytes = sum(least_weight_bytes(model, dtype.itemsize) for model in sources.models)
    total_bytes = device_memory(device).total_bytes
    if needed_bytes > total_bytes:
        names = " and ".join(f"{model.key}={model.name}" for model in sources.models)
        raise UserError(
            f"the weights of {names} need {needed_bytes / 2**30:,.1f} GiB in {str(dtype).removeprefix('torch.')}, "
            f"{device} has {total_bytes / 2**30:,.1f} GiB; "
            "name smaller models, or see make doctor for what else helps"
        )


def load_found_pair(sources: PairSources, device: torch.device, dtype: torch.dtype, *, pack: bool = True) -> Pair:
    """Load both models, weights packed where that is faster. Raises UserError for what only the weights tell."""
    tokenizer = sources.tokenizer
    verifier = load_model(sources.verifier, tokenizer, device, dtype)
    if isinstance(sources.draft, Path):
        trunk = trunk_of(sources.verifier)
        cut_from = verifier if trunk is sources.verifier else load_model(trunk, tokenizer, device, dtype)
        draft = _load_shallow(sources.draft, cut_from)
    else:
        draft = load_model(sources.draft, tokenizer, device, dtype)
    if pack and multiplies_packed_weights(device, dtype):
        _pack(verifier)
        _pack(draft)
    return Pair(verifier, draft, tokenizer, _eos_ids(verifier.module, tokenizer))


def load_pair(
    verifier_name: str,
    draft_name: str,
    device: torch.device,
    dtype: torch.dtype,
    trust_remote_code: bool = False,
    *,
    pack: bool = True,
) -> Pair:
    """Load both models. Raises UserError in one line for anything missing, unfit or not matching.

    Whatever can be refused from small files alone is refused before any weights load.
    """
    return load_found_pair(find_pair(verifier_name, draft_name, trust_remote_code), device, dtype, pack=pack)


def load_model(
    source: ModelSource, tokenizer: PreTrainedTokenizerBase, device: torch.device, dtype: torch.dtype
) -> LanguageModel:
    """One model with all of its weights. Raises UserError."""
    files = source.weight_files()
    gguf = source.gguf
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # of the bars that transformers draws, one cannot be turned off
            module, loading = (
                gguf.load(dtype)
                if gguf
                else AutoModelForCausalLM.from_pretrained(
                    source.directory, dtype=dtype, output_loading_info=True, use_safetensors=True, **source.arguments
                )
            )
        module = module.to(device).eval().requires_grad_(False)
    except Exception as error:  # whatever a model's files make the library raise
        raise source.refused(out_of_memory_line(error) if is_out_of_memory(error) else error) from error
    if getattr(module, "_hf_peft_config_loaded", False):  # where peft is installed, transformers applies it unasked
        raise source.refused(
            f"{source.directory / ADAPTER_CONFIG} lies beside its weights and was applied; move it away"
        )
    refuse_class(source, type(module), module.config)
    if absent := sorted(loading["missing_keys"]):
        raise source.refused(f"its files lack {len(absent)} of its weights, the first {absent[0]}")
    use_grouped_attention(module)
    vocabulary, unused = _emittable_ids(emittable_tokens(tokenizer, module.config), module.device)
    titles = {embedded.NAME: (embedded.TITLE, embedded.NOTE), upcycled.NAME: (upcycled.TITLE, upcycled.NOTE)}
    title, note = titles.get(source.name, (source.name, "GGUF, dequantised" if source.gguf_file else ""))
    return LanguageModel(
        name=title,
        module=module,
        vocabulary=vocabulary,
        unused_ids=unused,
        dimensions=source.dimensions(module),
        fingerprint=fingerprint_of(files),
        note="; ".join(filter(None, (note, *source.notes))),
        stored_generation_settings=module.generation_config.to_diff_dict(),
        conversion=gguf.description() if gguf else None,
    )


def _load_shallow(directory: Path, verifier: LanguageModel) -> LanguageModel:
    card, module = shallow.load_shallow_draft(directory, verifier.module, verifier.fingerprint)
    return LanguageModel(
        name=directory.name,
        module=module,
        vocabulary=verifier.vocabulary,
        unused_ids=verifier.unused_ids,
        dimensions=dimensions_of(module),
        fingerprint=fingerprint_of([directory / shallow.WEIGHTS]),
        note=f"{card.n_layers} layers distilled from {card.verifier}",
        stored_generation_settings={},
    )


@torch.inference_mode()
def _pack(model: LanguageModel) -> None:
    """Pack the weights of a model whose class reads them through its layers alone; leave any other plain."""
    pack_linear_layers(model.module)
    try:
        model.module(input_ids=torch.zeros(1, 1, dtype=torch.long, device=model.device), use_cache=False)
    except RuntimeError:  # a packed weight was handed to another operator; that it stays plain is in the manifest
        unpack_linear_layers(model.module)
        return
    head = model.module.get_output_embeddings()
    if isinstance(head, shallow.FrequentIdsHead):
        head.pack()


def emittable_tokens(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> dict[int, str]:
    """Every id that stands for a token and has an output row.

    Converters to GGUF fill padded rows with tokens called [PAD<id>]: not these. Tokenizers may have tokens added for
    which there is no row.
    """
    n_rows = config.get_text_config(decoder=True).vocab_size
    return {i: token for token, i in tokenizer.get_vocab().items() if i < n_rows and token != f"[PAD{i}]"}


def _check_same_tokens(
    verifier: ModelSource,
    verifier_tokenizer: PreTrainedTokenizerBase,
    draft: ModelSource,
    draft_tokenizer: PreTrainedTokenizerBase,
) -> None:
    """Raise UserError naming the first id that stands for different tokens in the two models."""
    ours = emittable_tokens(verifier_tokenizer, verifier.config())
    theirs = emittable_tokens(draft_tokenizer, draft.config())
    for token_id in sorted(ours.keys() | theirs.keys()):
        if ours.get(token_id) != theirs.get(token_id):
            raise UserError(
                f"models.draft={draft.name} does not share the tokens of models.verifier={verifier.name}: "
                f"id {token_id} is {_shown(theirs, token_id)} in the draft, {_shown(ours, token_id)} in the verifier; "
                "name two models of one tokenizer"
            )


def _shown(tokens: dict[int, str], token_id: int) -> str:
    return repr(tokens[token_id]) if token_id in tokens else "no token"


def _checked(source: ModelSource) -> tuple[ModelSource, PreTrainedTokenizerBase]:
    """A model that has passed every check short of loading it, with what is to be said of it, and its tokenizer."""
    refuse_unless_runnable(source)
    refuse_unless_tokens_can_be_taken_back(source)
    notes = () if source.gguf_file else refuse_unless_whole(source)
    return replace(source, notes=notes), source.tokenizer()


def _emittable_ids(tokens: dict[int, str], device: torch.device) -> tuple[int, Tensor | None]:
    """One more than the largest id, and the ids below it that stand for nothing."""
    vocabulary = max(tokens) + 1
    unused = sorted(set(range(vocabulary)) - tokens.keys())
    return vocabulary, torch.tensor(unused, device=device) if unused else None


def _eos_ids(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Every id that the model's files or the tokenizer say ends a text."""
    found: set[int] = set()
    for place in (module.generation_config, module.config.get_text_config(decoder=True), tokenizer):
        stated = getattr(place, "eos_token_id", None)
        if stated is not None:
            found |= set(stated) if isinstance(stated, list) else {stated}
    return tuple(sorted(found))
