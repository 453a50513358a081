"""Directories and files that look like models and cannot be run: a line each, before anything is built or loaded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_checkpoints import edit_json, save_model, write_gguf
from transformers import BertConfig, T5Config

from specstudy.errors import UserError
from specstudy.models import unrunnable
from specstudy.models.load import find_pair
from specstudy.models.sources import find_source

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 165736\n"
ADAPTER = {"peft_type": "LORA", "base_model_name_or_path": "somebody/base-1b"}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sound")
    save_model(directory)
    return directory


@pytest.fixture
def model(sound: Path, tmp_path: Path) -> Path:
    shutil.copytree(sound, tmp_path / "model")
    return tmp_path / "model"


def refusal(model: Path) -> str:
    """The line that a study ends in, which doctor's first look ends in too."""
    with pytest.raises(UserError) as refused:
        find_pair(str(model), str(model))
    with pytest.raises(UserError) as refused_at_first:
        unrunnable.refuse_unless_runnable(find_source(str(model), "models.verifier"))
    message = str(refused.value)
    assert message == str(refused_at_first.value)
    assert "\n" not in message
    assert message.startswith(f"models.verifier={model} cannot be loaded: ")
    return message.partition("loaded: ")[2]


def only_an_adapter(model: Path) -> None:
    (model / "adapter_config.json").write_text(json.dumps(ADAPTER))
    (model / "config.json").unlink()
    (model / "model.safetensors").rename(model / "adapter_model.safetensors")


def states(**settings: Any) -> Callable[[Path], None]:
    return lambda model: edit_json(model / "config.json", **settings)


def quantised_by(method: str) -> Callable[[Path], None]:
    return states(quantization_config={"quant_method": method})


def has_index(content: str) -> Callable[[Path], None]:
    def write(model: Path) -> None:
        (model / "model.safetensors").unlink()
        (model / "model.safetensors.index.json").write_text(content)

    return write


def of(config: Any) -> Callable[[Path], None]:
    return lambda model: (model / "config.json").write_text(json.dumps(config.to_dict()))


def a_part(model: Path) -> None:
    (model / "model.safetensors").rename(model / "model-00001-of-00002.safetensors")


def pointer(file: str) -> Callable[[Path], object]:
    return lambda model: (model / file).write_text(POINTER)


QUANTISED = "its weights are quantised"
NO_FILES = "model.safetensors.index.json is damaged ("


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            pointer("model.safetensors"),
            "model.safetensors is a Git LFS pointer",
        ),
        (pointer("tokenizer.json"), "tokenizer.json is a Git LFS pointer"),
        (pointer("config.json"), "config.json is a Git LFS pointer"),
        (only_an_adapter, "LoRA adapter of somebody/base-1b"),
        (
            states(quantization={"group_size": 32, "bits": 4}),
            f"{QUANTISED} to 4 bits for MLX",
        ),
        *((quantised_by(m), f"{QUANTISED} with {m}, which is not run") for m in ("gptq", "compressed-tensors", "fp8")),
        (states(text_config={"quantization_config": {"bits": 4}}), f"{QUANTISED} with a method that it does not name"),
        (of(T5Config()), "t5 is no causal language model: it is an encoder-decoder"),
        (of(BertConfig()), "bert is no causal language model: it is an encoder;"),
        (states(model_type="clip"), "clip is no causal language model;"),
        (
            a_part,
            "but no model.safetensors.index",
        ),
        (has_index('{"weight_map": {"a": 5}}'), f"{NO_FILES}the file of a is 5, not a file's name)"),
        (has_index('{"weight_map": {"a": "../b.safetensors"}}'), f"{NO_FILES}the file of a is '../b.safetensors'"),
        *(
            (has_index(wrong), f"{NO_FILES}it has no weight_map")
            for wrong in ("[]", "null", "{}", '{"weight_map": []}', '{"weight_map": {}}')
        ),
        (has_index("{"), NO_FILES),
        (lambda m: (m / "config.json").write_text("["), "config.json is damaged ("),
        (lambda m: (m / "config.json").write_text("[]"), "config.json is damaged ("),
        (states(rms_norm_eps=float("nan")), "rms_norm_eps in its config.json is NaN"),
        (
            states(num_hidden_layers=10**8),
            "num_hidden_layers 100,000,000, but its files hold 21",
        ),
        (states(text_config={"n_layer": 10**12}), "its config.json says n_layer 1,000,000,000,000, but"),
        (states(num_local_experts=10**8), "its config.json says num_local_experts 100,000,000, but"),
        *(
            (states(**{name: value}), f"{name} in its config.json is {value}, and has to be 1 or more")
            for name, value in (("num_attention_heads", 0), ("num_key_value_heads", 0), ("num_hidden_layers", -1))
        ),
    ],
)
def test_what_cannot_be_run_is_a_line(model: Path, spoil: Callable[[Path], object], said: str) -> None:
    spoil(model)
    assert said in refusal(model)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"vocab_size": 10**12}, "[259, 32] in its files, but [1000000000000, 32]"),
        ({"hidden_size": 10**9, "head_dim": 8}, "in its files, but ["),
        ({"intermediate_size": 10**18}, "cannot be loaded: "),
    ],
)
def test_absurd_sizes_are_given_no_memory(model: Path, settings: dict[str, int], said: str) -> None:
    edit_json(model / "config.json", **settings)
    with pytest.raises(UserError, match="cannot be loaded") as refused:
        find_pair(str(model), str(model))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda m: (m / "tokenizer.json").write_text('{"a":'), "tokenizer.json is damaged (Expecting value"),
        (states(hidden_act="nonesuch"), "transformers does not know 'nonesuch'"),
        (states(sliding_window=4), "its config.json states sliding_window, which llama models do not have"),
    ],
)
def test_a_line_names_what_is_wrong(model: Path, spoil: Callable[[Path], object], said: str) -> None:
    spoil(model)
    with pytest.raises(UserError, match="cannot be loaded") as refused:
        find_pair(str(model), str(model))
    assert said in str(refused.value)


def test_experts_without_a_tensor_each_are_no_fault(model: Path) -> None:
    # Doge states its experts, 16,384, where it uses none, and keeps those that it uses in rows of a table.
    edit_json(model / "config.json", num_experts=16_384)
    unrunnable.refuse_unless_runnable(find_source(str(model), "models.verifier"))


def test_a_gguf_that_is_a_pointer_or_a_part(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a-00002-of-00003.gguf")
    said = "it is part 2 of 3 of a GGUF; join them: llama-gguf-split --merge"
    assert refusal(tmp_path / "a-00002-of-00003.gguf") == said
    (tmp_path / "b.gguf").write_text(POINTER)
    assert refusal(tmp_path / "b.gguf").startswith("b.gguf is a Git LFS pointer")


def test_a_weight_file_is_named_by_its_directory(model: Path) -> None:
    with pytest.raises(UserError, match=f"is a file but not a .gguf; name its directory: {model}"):
        find_source(str(model / "model.safetensors"), "models.verifier")


def test_an_encoder_trained_as_a_decoder_is_one(model: Path) -> None:
    of(BertConfig(is_decoder=True))(model)
    unrunnable.refuse_unless_runnable(find_source(str(model), "models.verifier"))
