"""Model directories and GGUF files of a few kilobytes, with a byte-level tokenizer that spells everything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from small_tokenizers import CHATML, CHATML_MARKS, byte_level_tokenizer
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

MERGES = [("t", "h")]
N_TOKENS = 259
END_ID = 258


def small_tokenizer() -> PreTrainedTokenizerFast:
    """256 bytes, `th`, `<|im_start|>` and `<|im_end|>`, which ends a text."""
    tokenizer = byte_level_tokenizer(CHATML, CHATML_MARKS, MERGES)
    tokenizer.eos_token = CHATML_MARKS[1]
    return tokenizer


def small_llama(n_rows: int = N_TOKENS, **settings: Any) -> LlamaConfig:
    """A Llama of two layers with `n_rows` output rows."""
    return LlamaConfig(
        **{
            "vocab_size": n_rows,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 64,
            "initializer_range": 0.3,
            "bos_token_id": None,
            "eos_token_id": END_ID,
            **settings,
        }
    )


def save_model(
    directory: Path,
    config: PreTrainedConfig | None = None,
    tokenizer: PreTrainedTokenizerFast | None = None,
    seed: int = 0,
    **saving: Any,
) -> PreTrainedModel:
    """Write a random model and its tokenizer, and return the model as it was written (bfloat16)."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config or small_llama(), dtype=torch.bfloat16)
    model.save_pretrained(directory, **saving)
    (tokenizer or small_tokenizer()).save_pretrained(directory)
    return model


def edit_json(path: Path, **changes: Any) -> None:
    """Set keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def write_gguf(path: Path, n_padding: int = 3) -> None:
    """A float32 Llama of one layer with the small tokenizer and `n_padding` rows of padding, as converters write it."""
    tokens = [*sorted(ByteLevel.alphabet()), *map("".join, MERGES), *CHATML_MARKS]
    kinds = [gguf.TokenType.NORMAL] * 257 + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.UNUSED] * n_padding
    tokens += [f"[PAD{i}]" for i in range(len(tokens), len(kinds))]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_vocab_size(len(tokens))
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(8)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_eos_token_id(END_ID)
    writer.add_chat_template(CHATML)
    shapes = {"token_embd": (len(tokens), 32), "output_norm": (32,)} | {
        f"blk.0.{name}": shape
        for name, shape in {
            "attn_norm": (32,),
            "attn_q": (32, 32),
            "attn_k": (16, 32),
            "attn_v": (16, 32),
            "attn_output": (32, 32),
            "ffn_norm": (32,),
            "ffn_gate": (48, 32),
            "ffn_up": (48, 32),
            "ffn_down": (32, 48),
        }.items()
    }
    rng = np.random.default_rng(0)
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.normal(scale=0.3, size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
