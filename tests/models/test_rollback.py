"""Which architectures are taken and which refused, by their configuration alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from small_checkpoints import save_model
from transformers import AutoConfig, DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicLayer

from specstudy.errors import UserError
from specstudy.models.load import load_pair
from specstudy.models.rollback import refuse_unless_tokens_can_be_taken_back
from specstudy.models.sources import ModelSource

# What keeps a running state, and the type that its configuration gives the first such layer.
RECURRENT = {
    "bailing_hybrid": "linear_attention",
    "bamba": "linear_attention",
    "falcon_h1": "hybrid",
    "falcon_mamba": "linear_attention",
    "granitemoehybrid": "linear_attention",
    "jamba": "linear_attention",
    "kimi_linear": "linear_attention",
    "lfm2": "conv",
    "mamba": "linear_attention",
    "mamba2": "linear_attention",
    "minimax": "linear_attention",
    "nemotron_h": "linear_attention",
    "olmo_hybrid": "linear_attention",
    "qwen3_5": "linear_attention",
    "qwen3_next": "linear_attention",
    "recurrent_gemma": "linear_attention",
    "rwkv": None,
    "zamba": "linear_attention",
    "zamba2": "linear_attention",
}
OTHERWISE_UNFIT = {
    "deepseek_v32": "taking tokens back from a DynamicIndexedLayer is not tested here",
    "openai-gpt": "takes no cache of keys and values",
    "reformer": "takes no cache of keys and values",
    "xlnet": "takes no cache of keys and values",
}
TAKEN = (
    "cohere2",
    "gemma",
    "gemma2",
    "gemma3_text",
    "gemma3n_text",
    "gpt2",
    "gpt_neox",
    "gpt_oss",
    "granite",
    "llama",
    "mistral",
    "mixtral",
    "olmo2",
    "olmoe",
    "opt",
    "phi3",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "smollm3",
    "starcoder2",
)


def source_of(monkeypatch: pytest.MonkeyPatch, config: PreTrainedConfig) -> ModelSource:
    monkeypatch.setattr(ModelSource, "config", lambda self: config)
    return ModelSource("models.draft", "somebody/model", Path(), None, trust_remote_code=False)


def refusal(source: ModelSource) -> str:
    with pytest.raises(UserError) as refused:
        refuse_unless_tokens_can_be_taken_back(source)
    return str(refused.value)


def default_config(model_type: str) -> PreTrainedConfig:
    # lfm2's default names every layer attention; its published models do not.
    changes = {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2} if model_type == "lfm2" else {}
    return AutoConfig.for_model(model_type, **changes)


def test_a_window_that_only_the_cache_follows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # The library's cache takes its windows from settings that Llama's own attention does not read.
    windows = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}
    config = AutoConfig.for_model("llama", num_hidden_layers=2, **windows)
    assert "states layer_types, which llama models do not have" in refusal(source_of(monkeypatch, config))
    refuse_unless_tokens_can_be_taken_back(source_of(monkeypatch, default_config("modernbert-decoder")))
    one = AutoConfig.for_model("mistral", sliding_window=1)
    assert "its sliding window is 1" in refusal(source_of(monkeypatch, one))


@pytest.mark.parametrize("model_type", RECURRENT)
def test_running_states_are_refused_naming_the_layer(model_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = f" of type {RECURRENT[model_type]}" if RECURRENT[model_type] else ""
    message = refusal(source_of(monkeypatch, default_config(model_type)))
    assert f"{model_type} layers{kind} keep a running state that cannot be taken back" in message


@pytest.mark.parametrize("model_type", OTHERWISE_UNFIT)
def test_other_caches_are_refused(model_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert OTHERWISE_UNFIT[model_type] in refusal(source_of(monkeypatch, AutoConfig.for_model(model_type)))


@pytest.mark.parametrize("model_type", TAKEN)
def test_attention_is_taken(model_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_unless_tokens_can_be_taken_back(source_of(monkeypatch, AutoConfig.for_model(model_type)))


def test_a_layer_that_nobody_here_has_seen_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class NewLayer(DynamicLayer):
        """What a later version of the library may bring."""

    monkeypatch.setattr(DynamicCache, "__init__", lambda self, config: setattr(self, "layers", [NewLayer()]))
    message = refusal(source_of(monkeypatch, AutoConfig.for_model("llama")))
    assert "taking tokens back from a NewLayer is not tested here" in message


@pytest.mark.parametrize("model_type", ["mamba", "qwen3_next"])
def test_either_model_of_a_pair_is_refused_before_weights_load(
    model_type: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    save_model(tmp_path / "whole")
    (tmp_path / "recurrent").mkdir()
    AutoConfig.for_model(model_type).save_pretrained(tmp_path / "recurrent")
    save_file({str(i): torch.zeros(100) for i in range(10)}, tmp_path / "recurrent" / "model.safetensors")
    monkeypatch.setattr("specstudy.models.load.load_model", None)
    for verifier, draft, key in (("recurrent", "whole", "verifier"), ("whole", "recurrent", "draft")):
        with pytest.raises(UserError, match=rf"models\.{key}=.* keep a running state"):
            load_pair(str(tmp_path / verifier), str(tmp_path / draft), torch.device("cpu"), torch.float32)
