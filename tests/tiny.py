"""Tiny random models and fakes for tests: no downloads, milliseconds a forward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    PreTrainedConfig,
    Qwen2MoeConfig,
    Qwen3Config,
)

from specstudy.measure.proposers import Proposal
from specstudy.measure.sampling import Warp
from specstudy.models.attention_functions import use_grouped_attention
from specstudy.models.dimensions import dimensions_of
from specstudy.models.load import LanguageModel

VOCABULARY = 61
_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    # Wide enough that distributions differ clearly from position to position.
    "initializer_range": 0.3,
}


def configurations() -> dict[str, PreTrainedConfig]:
    """One small configuration for each kind of layer that people use."""
    return {
        "llama": LlamaConfig(**_COMMON),
        "tied": LlamaConfig(**_COMMON, tie_word_embeddings=True),
        "one key head": LlamaConfig(**{**_COMMON, "num_key_value_heads": 1}),
        "all key heads, untied": LlamaConfig(**{**_COMMON, "num_key_value_heads": 4, "tie_word_embeddings": False}),
        "own head size": Qwen3Config(**_COMMON, head_dim=16),
        "sliding window": MistralConfig(**_COMMON, sliding_window=8),
        "alternating": Gemma3TextConfig(**_COMMON, head_dim=8, sliding_window=8, sliding_window_pattern=2),
        "learned positions": GPT2Config(
            vocab_size=VOCABULARY, n_embd=32, n_layer=3, n_head=4, n_positions=256, initializer_range=0.3
        ),
        "experts": MixtralConfig(**_COMMON, num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
        "shared experts": Qwen2MoeConfig(
            **_COMMON,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=24,
            shared_expert_intermediate_size=24,
        ),
        "soft-capped": Gemma2Config(
            **_COMMON,
            head_dim=8,
            query_pre_attn_scalar=8,
            sliding_window=8,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=3.0,
        ),
    }


def language_model(config: PreTrainedConfig, seed: int = 0, vocabulary: int = VOCABULARY) -> LanguageModel:
    """A random float32 model of this configuration."""
    torch.manual_seed(seed)
    module = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    use_grouped_attention(module)
    return LanguageModel(
        name="tiny",
        module=module,
        vocabulary=vocabulary,
        unused_ids=None,
        dimensions=dimensions_of(module),
        fingerprint=f"tiny-{seed}",
        note="",
        stored_generation_settings={},
    )


def llama(seed: int = 0, **changes: Any) -> LanguageModel:
    """A random Llama."""
    return language_model(LlamaConfig(**{**_COMMON, **changes}), seed)


@torch.inference_mode()
def uncached_logits(model: LanguageModel, ids: list[int]) -> Tensor:
    """Logits [S, V] of a plain forward pass without a cache."""
    return model.emittable_logits(model.module(input_ids=torch.tensor([ids]), use_cache=False).logits[0])


def logits_without_position(model: LanguageModel, ids: list[int], position: int) -> Tensor:
    """Logits [S, V]; no query behind `position` sees its key."""
    return logits_without_positions(model, ids, [position], position + 1)


@torch.inference_mode()
def logits_without_positions(model: LanguageModel, ids: list[int], positions: list[int], first_query: int) -> Tensor:
    """Logits [S, V] with an explicit mask handed to the model, which transformers takes as it is in every layer: no
    query from `first_query` on sees the keys of `positions`."""
    seen = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
    seen[first_query:, positions] = False
    mask = torch.zeros(seen.shape, dtype=model.dtype).masked_fill_(~seen, torch.finfo(model.dtype).min)
    output = model.module(input_ids=torch.tensor([ids]), attention_mask=mask[None, None], use_cache=False)
    return model.emittable_logits(output.logits[0])


class ScriptedProposer:
    """Drafts what a script says, with certainty: the token that the verifier would take, or one that it would not.

    `passes` yields for each drafted token whether it is to be accepted, at temperature 0.
    """

    model = None

    def __init__(self, verifier: LanguageModel, passes: Any) -> None:
        self.verifier = verifier
        self.passes = passes
        self.kept_lengths: list[int] = []

    def prefill(self, ids: Tensor) -> None:
        """Nothing is cached."""

    def propose(self, context: Tensor, n: int, uniforms: Tensor, warp: Warp) -> Proposal:
        """Draft by uncached greedy decoding of the verifier itself, spoilt where the script says so."""
        ids = context.tolist()
        drafted = []
        for _ in range(n):
            best = int(uncached_logits(self.verifier, ids)[-1].argmax())
            drafted.append(best if next(self.passes) else (best + 1) % self.verifier.vocabulary)
            ids.append(drafted[-1])
        tokens = torch.tensor(drafted, dtype=torch.long)
        logits = torch.full((n, self.verifier.vocabulary), -30.0)
        logits[torch.arange(n), tokens] = 30.0
        q = torch.nn.functional.one_hot(tokens, self.verifier.vocabulary).float()
        return Proposal(tokens, q, torch.zeros(n), logits, torch.ones(n, dtype=torch.bool), False, [])

    def keep(self, length: int) -> None:
        self.kept_lengths.append(length)
