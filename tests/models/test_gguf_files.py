"""GGUF files as people have them: quantised, with keys of all kinds; what would be dropped is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf_files import N_TOKENS, TOKENIZER, random_model, tensors_of, write

from specstudy.errors import UserError
from specstudy.models.describe import describe
from specstudy.models.gguf_model import read_gguf
from specstudy.models.load import load_pair
from specstudy.models.sources import find_source

WIDTH = 256
KEYS: dict[str, Any] = {
    ".context_length": 64,
    ".embedding_length": WIDTH,
    ".block_count": 3,
    ".feed_forward_length": WIDTH,
    ".attention.head_count": 4,
    ".attention.layer_norm_rms_epsilon": 1e-5,
    **TOKENIZER,
}
SHAPE = {"hidden_size": WIDTH, "intermediate_size": WIDTH, "num_attention_heads": 4, "max_position_embeddings": 64}


@pytest.fixture(scope="module")
def tensors() -> dict[str, Any]:
    return tensors_of(random_model("llama", **SHAPE), "llama")


@pytest.fixture
def refusal(tmp_path: Path, tensors: dict[str, Any]) -> Callable[..., str]:
    """What is said of a file with these keys and tensors more, or without them where their value is None."""

    def said(keys: dict[str, Any], others: dict[str, Any] | None = None, family: str = "llama") -> str:
        def kept(entries: dict[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in entries.items() if value is not None}

        path = write(tmp_path / "model.gguf", family, kept(KEYS | keys), kept(tensors | (others or {})))
        with pytest.raises(UserError) as raised:
            find_source(str(path), "models.verifier").config()
        assert "\n" not in str(raised.value)
        assert str(raised.value).startswith(f"models.verifier={path} cannot be loaded: ")
        return str(raised.value).partition("cannot be loaded: ")[2]

    return said


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({".attention.sliding_window": 8}, "key llama.attention.sliding_window"),
        ({".final_logit_softcapping": 30.0}, "key llama.final_logit_softcapping"),
        ({".expert_count": 4}, "key llama.expert_count"),
        ({"tokenizer.ggml.suppress_tokens": [3]}, "key tokenizer.ggml.suppress_tokens"),
        ({".rope.scaling.yarn_log_multiplier": 0.1}, "key llama.rope.scaling.yarn_log_multiplier"),
        ({".rope.scaling.type": "su"}, "llama.rope.scaling.type is 'su'"),
        ({".rope.scaling.attn_factor": 1.2}, "llama.rope.scaling.attn_factor is 1.2"),
        ({".rope.dimension_count": 32}, "dimension_count is 32, and only 64"),
        ({".attention.causal": False}, "llama.attention.causal is False"),
        ({".attention.head_count_kv": [4, 2, 4]}, "head_count_kv differs"),
        ({".vocab_size": 300}, "llama.vocab_size is 300, and only 259 can be read"),
        ({".embedding_length": None}, "it does not state llama.embedding_length"),
        ({".attention.head_count": None}, "it does not state llama.attention.head_count"),
        ({".attention.layer_norm_rms_epsilon": None}, "it does not state llama.attention.layer_norm_rms_epsilon"),
        ({".feed_forward_length": 128}, "its tensor blk.0.ffn_gate.weight has another shape than its keys say"),
        *(
            ({key: value}, f"llama{key} is {value!r}, and has to be a number over 0")
            for key, value in (
                (".attention.head_count", 0),
                (".attention.head_count_kv", 0),
                (".block_count", "3"),
                (".context_length", 0),
                (".attention.layer_norm_rms_epsilon", float("nan")),
                (".rope.freq_base", 0.0),
            )
        ),
        ({".block_count": 10**8}, "llama.block_count is 100,000,000, and it has 30 tensors"),
        ({"general.type": "adapter"}, "general.type is 'adapter', and only 'model' can be read"),
        ({"split.count": 3, "split.no": 0}, "it is one of 3 parts; join them with `llama-gguf-split --merge"),
    ],
)
def test_a_key_that_cannot_be_applied(refusal: Callable[..., str], keys: dict[str, Any], said: str) -> None:
    assert said in refusal(keys)


def test_a_tensor_without_a_place(refusal: Callable[..., str]) -> None:
    scale = np.ones(WIDTH, np.float32)
    assert "blk.1.attn_q_norm.weight has no place" in refusal({}, {"blk.1.attn_q_norm.weight": scale})
    biases = {f"blk.{i}.attn_{part}.bias": scale for i in range(3) for part in ("q", "k", "v")}
    assert "3 of its tensors, the first blk.0.attn_output.bias" in refusal({}, biases)


@pytest.mark.parametrize("shape", [(-1,), (1, WIDTH, WIDTH), (N_TOKENS, WIDTH)])
def test_a_tensor_of_another_shape(
    refusal: Callable[..., str], tensors: dict[str, Any], shape: tuple[int, ...]
) -> None:
    name = "blk.0.attn_q.weight" if len(shape) != 2 else "output.weight"
    spoilt = tensors[name].reshape(shape) if len(shape) != 2 else tensors[name].T
    assert refusal({}, {name: spoilt}) == f"its tensor {name} has another shape than its keys say"


def test_divisors_of_other_frequencies_than_there_are(refusal: Callable[..., str]) -> None:
    said = refusal({}, {"rope_freqs.weight": np.ones(1, np.float32)})
    assert said == "it divides 1 frequencies, and 64 numbers of a head turn in pairs"


def test_a_tensor_that_is_not_there(refusal: Callable[..., str]) -> None:
    assert refusal({}, {"blk.2.ffn_up.weight": None}) == "it lacks 1 of its tensors, the first blk.2.ffn_up.weight"
    assert "does not have the tensor token_embd.weight" in refusal({}, {"token_embd.weight": None})


def test_another_family(refusal: Callable[..., str]) -> None:
    assert refusal({}, family="falcon").startswith("GGUF files of the family falcon are not read, only ")


def test_what_only_describes_is_passed_over(tmp_path: Path, tensors: dict[str, Any]) -> None:
    words = {
        "general.name": "A model",
        "general.license": "mit",
        "general.base_model.0.name": "Another",
        "general.tags": ["chat"],
        "general.sampling.temp": 0.6,
        "general.file_type": 15,
        "general.quantization_version": 2,
        "quantize.imatrix.file": "a.dat",
        "split.count": 1,
        "tokenizer.ggml.fim_pre_token_id": 3,
        "tokenizer.chat_template.tool_use": "{{ 0 }}",
        ".attention.causal": True,
        ".rope.freq_base": 10_000.0,
        ".rope.scaling.type": "none",
        ".attention.head_count_kv": [4, 4, 4],
    }
    plain = read_gguf(write(tmp_path / "plain.gguf", "llama", KEYS, tensors))
    described = read_gguf(write(tmp_path / "described.gguf", "llama", KEYS | words, tensors))
    assert described.config().to_dict() == plain.config().to_dict()
    assert described.tokenizer.chat_template == plain.tokenizer.chat_template


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_1"])
def test_quantised_weights_are_what_the_format_says(tmp_path: Path, tensors: dict[str, Any], kind: str) -> None:
    quantisation = GGMLQuantizationType[kind]
    model = read_gguf(write(tmp_path / "model.gguf", "llama", KEYS, tensors, quantisation))
    loaded, _ = model.load(torch.float32)
    expected = gguf.dequantize(gguf.quantize(tensors["blk.1.ffn_up.weight"], quantisation), quantisation)
    assert np.array_equal(loaded.model.layers[1].mlp.up_proj.weight.numpy(force=True), expected)
    assert model.description()["tensor_types"] == sorted({kind, "F32"})


@pytest.mark.parametrize("kind", ["Q3_K", "Q4_K", "Q6_K"])
def test_kinds_that_are_only_read(tmp_path: Path, tensors: dict[str, Any], kind: str) -> None:
    quantisation = GGMLQuantizationType[kind]
    n_bytes = gguf.quant_shape_to_byte_shape((WIDTH, WIDTH), quantisation)
    blocks = np.random.default_rng(0).integers(0, 60, n_bytes, dtype=np.uint8)  # small scales: no infinities
    path = tmp_path / "model.gguf"
    others = {name: value for name, value in tensors.items() if name != "blk.1.ffn_up.weight"}
    write(path, "llama", KEYS, others, raw={"blk.1.ffn_up.weight": (blocks, quantisation)})
    loaded, _ = read_gguf(path).load(torch.float32)
    expected = gguf.dequantize(blocks, quantisation)
    assert np.isfinite(expected).all()
    assert np.array_equal(loaded.model.layers[1].mlp.up_proj.weight.numpy(force=True), expected)


def test_a_pair_says_what_was_made_of_its_files(tmp_path: Path, tensors: dict[str, Any]) -> None:
    divisors = {"rope_freqs.weight": np.linspace(1, 8, 32, dtype=np.float32)}
    keys = KEYS | {".rope.freq_base": 5e5, "tokenizer.ggml.eot_token_id": 257, "tokenizer.ggml.eom_token_id": 3}
    path = str(write(tmp_path / "model.gguf", "llama", keys, tensors | divisors))
    pair = load_pair(path, path, torch.device("cpu"), torch.float32)
    assert pair.eos_ids == (3, 257, 258)
    said = pair.verifier.conversion
    assert said is not None
    assert said["family"] == "llama"
    assert (said["rope"]["rope_theta"], said["rope"]["short_factor"][-1]) == (5e5, 8.0)
    assert said["eos_token_ids"] == [3, 257, 258]
    assert describe(find_source(path, "models.verifier")).conversion == said


def test_a_changed_file_is_read_again(tmp_path: Path, tensors: dict[str, Any]) -> None:
    path = write(tmp_path / "model.gguf", "llama", KEYS, tensors)
    assert read_gguf(path).config().rope_parameters["rope_theta"] == 10_000.0
    write(path, "llama", KEYS | {".rope.freq_base": 77.0}, tensors)
    assert read_gguf(path).config().rope_parameters["rope_theta"] == 77.0
