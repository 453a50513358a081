"""Weight files against what the model takes of them: all of it, or a line that names what is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_checkpoints import N_TOKENS, edit_json, save_model, small_llama
from tiny_mixtures import families
from torch import Tensor
from transformers import AutoModelForCausalLM, GPT2Config

from specstudy.errors import UserError
from specstudy.models.checkpoint import refuse_unless_whole
from specstudy.models.load import load_pair
from specstudy.models.sources import find_source

Tensors = dict[str, Tensor]
SHARDED = "model.safetensors.index.json"
UP = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture(autouse=True)
def _no_weights_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("weights were loaded"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(tmp_path / "model")
    return tmp_path / "model"


def change(directory: Path, tensors: Callable[[Tensors], object], file: str = "model.safetensors") -> None:
    """Rewrite a weight file."""
    stored = load_file(directory / file)
    tensors(stored)
    save_file(stored, directory / file, metadata={"format": "pt"})


def notes(directory: Path) -> tuple[str, ...]:
    return refuse_unless_whole(find_source(str(directory), "models.verifier"))


def refusal(directory: Path) -> str:
    with pytest.raises(UserError) as refused:
        notes(directory)
    message = str(refused.value)
    assert message.startswith(f"models.verifier={directory} cannot be loaded: ")
    assert "\n" not in message
    return message.partition("loaded: ")[2]


def with_biases(tensors: Tensors) -> None:
    tensors.update({f"model.layers.{i}.self_attn.q_proj.bias": torch.ones(32) for i in range(2)})


def in_fp8(tensors: Tensors) -> None:
    tensors[UP] = tensors[UP].to(torch.float8_e4m3fn)
    tensors[f"{UP}_scale_inv"] = torch.ones(1, 1)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            with_biases,
            "its files hold 2 tensors that LlamaForCausalLM by its config.json does not take, the first "
            "model.layers.0.self_attn.q_proj.bias",
        ),
        (lambda t: t.pop(UP), f"its files lack 1 of its weights, the first {UP}"),
        (lambda t: t.pop("lm_head.weight"), "lack 1 of its weights, the first lm_head"),
        (
            lambda t: t.update(other=t.pop(UP)),
            f"its files lack 1 of its weights, the first {UP}; its files hold 1 tensors that LlamaForCausalLM by its "
            "config.json does not take, the first other",
        ),
        (lambda t: t.update({UP: torch.ones(48, 33)}), "[48, 33] in its files, but [48, 32]"),
        (in_fp8, f"{UP} is stored as F8_E4M3"),
        (lambda t: t.update({UP: t[UP].to(torch.int8)}), f"{UP} is stored as I8: quantised"),
        # A layer that the configuration does not count is lost, not a head for several tokens.
        (lambda t: t.update({"model.layers.2.mlp.up_proj.weight": t[UP] + 1}), "the first model.layers.2.mlp.up_proj"),
        # Named like a causal mask, but of another shape: somebody's bias.
        (lambda t: t.update({"model.layers.0.attn.bias": torch.ones(32)}), "the first model.layers.0.attn.bias"),
    ],
    ids=["biases", "missing", "no head", "another name", "shape", "fp8", "int8", "layers", "no mask"],
)
def test_what_is_lost_is_named(model: Path, spoil: Callable[[Tensors], object], said: str) -> None:
    change(model, spoil)
    assert said in refusal(model)


def test_what_follows_from_the_configuration_may_be_in_the_files(model: Path) -> None:
    change(
        model,
        lambda t: t.update(
            {
                "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4),
                "model.embeddings.position_ids": torch.arange(64),
                "model.layers.0.attn.masked_bias": torch.tensor(-1e4),
                "model.layers.0.attn.bias": torch.ones(1, 1, 64, 64, dtype=torch.bool),
            }
        ),
    )
    assert notes(model) == ()


def test_the_librarys_own_silence_hides_no_bias(tmp_path: Path) -> None:
    """GPT-2's class passes over whatever matches attn.bias, which h.2.attn.c_attn.bias does too."""
    save_model(tmp_path, GPT2Config(vocab_size=N_TOKENS, n_embd=32, n_layer=2, n_head=4, n_positions=64))
    assert notes(tmp_path) == ()
    change(tmp_path, lambda t: t.update({"transformer.h.2.attn.c_attn.bias": torch.ones(96)}))
    assert "the first transformer.h.2.attn.c_attn.bias" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("settings", "name", "part"),
    [
        ({}, "mtp.layers.0.mlp.up_proj.weight", "its head for several tokens at once"),
        ({"num_nextn_predict_layers": 1}, "model.layers.2.mlp.up_proj.weight", "its head for several tokens at once"),
        ({}, "model.vision_tower.blocks.0.weight", "its part for images or sound"),
    ],
)
def test_what_is_not_measured_is_said(model: Path, settings: dict[str, Any], name: str, part: str) -> None:
    edit_json(model / "config.json", **settings)
    change(model, lambda t: t.update({name: torch.ones(3, 3)}))
    assert notes(model) == (f"{part} (1 tensors, such as {name}) is not measured",)


@pytest.mark.parametrize("family", ["deepseek_v2", "qwen3_moe"])
def test_names_that_the_library_converts_are_followed(family: str, tmp_path: Path) -> None:
    save_model(tmp_path, families(N_TOKENS)[family])
    assert notes(tmp_path) == ()
    experts = sorted(name for name in load_file(tmp_path / "model.safetensors") if ".experts.1." in name)
    assert experts
    change(tmp_path, lambda t: [t.pop(name) for name in experts])
    assert "weights do not fit" in (said := refusal(tmp_path)) or "in its files, but" in said


class TestTied:
    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        save_model(tmp_path / "model", small_llama(tie_word_embeddings=True))
        return tmp_path / "model"

    def test_one_of_them_is_enough(self, model: Path) -> None:
        assert notes(model) == ()
        change(model, lambda t: t.update({"lm_head.weight": t.pop("model.embed_tokens.weight")}))
        assert notes(model) == ()

    def test_a_copy_is_harmless_but_other_values_are_refused(self, model: Path) -> None:
        change(model, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].clone()}))
        assert notes(model) == ()
        change(model, lambda t: t["lm_head.weight"][5].add_(1))
        assert "ties lm_head.weight to model.embed_tokens.weight" in refusal(model)

    def test_without_the_tie_the_head_is_missing(self, model: Path) -> None:
        edit_json(model / "config.json", tie_word_embeddings=False)
        assert "lack 1 of its weights, the first lm_head.weight" in refusal(model)

    def test_a_trunk_saved_without_its_prefix(self, tmp_path: Path) -> None:
        save_model(tmp_path / "gpt2", GPT2Config(vocab_size=N_TOKENS, n_embd=32, n_layer=2, n_head=4, n_positions=64))

        def without_prefix(tensors: Tensors) -> None:
            for name in list(tensors):
                tensors[name.removeprefix("transformer.")] = tensors.pop(name)

        change(tmp_path / "gpt2", without_prefix)
        assert notes(tmp_path / "gpt2") == ()
        change(tmp_path / "gpt2", lambda t: t.update({"lm_head.weight": t["wte.weight"] + 1}))
        assert "ties lm_head.weight to wte.weight" in refusal(tmp_path / "gpt2")


class TestSplit:
    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        save_model(tmp_path / "model", max_shard_size="20KB")
        return tmp_path / "model"

    def test_the_same_tensor_twice(self, model: Path) -> None:
        files = json.loads((model / SHARDED).read_text())["weight_map"]
        other = next(file for file in files.values() if file != files[UP])
        values = load_file(model / files[UP])[UP]
        change(model, lambda t: t.update({UP: values.clone()}), other)
        assert notes(model) == ()
        change(model, lambda t: t.update({UP: values + 1}), other)
        assert f"hold different values of {UP}; they are not parts of one model" in refusal(model)

    def test_an_index_that_promises_what_is_not_there(self, model: Path) -> None:
        files = json.loads((model / SHARDED).read_text())["weight_map"]
        edit_json(model / SHARDED, weight_map={**files, "more": files[UP]})
        assert "lists 1 tensors" in refusal(model)

    def test_a_tensor_that_the_index_does_not_list_counts_too(self, model: Path) -> None:
        files = json.loads((model / SHARDED).read_text())["weight_map"]
        change(model, lambda t: t.update(more=torch.ones(2)), files[UP])
        assert "does not take, the first more" in refusal(model)


def test_an_adapter_beside_the_weights_is_said(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # this pair is loaded
    (model / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "somebody/base"}')
    said = "a LoRA adapter of somebody/base lies beside the weights and is not applied"
    assert notes(model) == (said,)
    assert load_pair(str(model), str(model), torch.device("cpu"), torch.float32).draft.note == said
