"""A pair described from small files agrees with the pair loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_checkpoints import N_TOKENS, save_model, small_llama, write_gguf
from transformers import (
    AutoModelForCausalLM,
    Gemma3nTextConfig,
    Gemma3TextConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
)

from specstudy.errors import UserError
from specstudy.formulas import flops_per_token
from specstudy.models import shallow
from specstudy.models.describe import describe, describe_pair
from specstudy.models.fingerprint import fingerprint_of
from specstudy.models.load import PairSources, find_pair, load_found_pair
from specstudy.models.sources import ModelSource


@pytest.fixture
def sources(tmp_path: Path) -> PairSources:
    save_model(tmp_path / "verifier", small_llama(num_hidden_layers=3, tie_word_embeddings=True))
    save_model(tmp_path / "draft", small_llama(n_rows=300, num_hidden_layers=1, max_position_embeddings=32))
    return find_pair(str(tmp_path / "verifier"), str(tmp_path / "draft"))


def test_sizes_are_those_of_the_loaded_models(sources: PairSources) -> None:
    described = describe_pair(sources)
    pair = load_found_pair(sources, torch.device("cpu"), torch.bfloat16)
    assert [description.size.n_head_parameters_tied for description in described] == [N_TOKENS * 32, 0]
    for description, model in zip(described, (pair.verifier, pair.draft), strict=True):
        copies = description.size.n_head_parameters_tied if model.linear_layers == "packed" else 0
        assert description.size.n_parameters + copies == sum(p.numel() for p in model.module.parameters())
        assert description.size.dimensions == model.dimensions
        assert description.context_length == model.context_length
        assert sum(file.stat().st_size for file in description.files) >= 2 * description.size.n_parameters
    assert [description.size.vocabulary_rows for description in described] == [N_TOKENS, 300]


def test_no_weights_load(sources: PairSources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("weights were loaded"))
    assert describe_pair(sources)[1].size.dimensions.n_layers == 1


def test_a_gguf_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf")
    description = describe(ModelSource("models.verifier", "model.gguf", tmp_path, "model.gguf", False))
    assert (description.size.dimensions.n_layers, description.context_length) == (1, 64)
    assert description.files == [tmp_path / "model.gguf"]


def test_a_shallow_draft_counts_what_it_does_not_share(tmp_path: Path, sources: PairSources) -> None:
    verifier = sources.verifier
    body = save_model(tmp_path / "body", small_llama(num_hidden_layers=2), seed=1).model
    card: dict[str, object] = {
        "verifier": "verifier",
        "verifier_sha256": fingerprint_of(verifier.weight_files()),
        "n_layers": 2,
    }
    shallow.save_shallow_draft(tmp_path / "shallow", body, torch.tensor([3, 7, 100]), card)
    found = find_pair(verifier.name, str(tmp_path / "shallow"))
    described = describe_pair(found)[1]
    draft = load_found_pair(found, torch.device("cpu"), torch.bfloat16).draft
    layers = sum(p.numel() for name, p in draft.module.model.named_parameters() if not name.startswith("embed"))
    assert described.size.n_parameters == layers + 3 * 32
    assert described.size.dimensions == draft.dimensions
    assert len(described.sliding_windows) == 2

    save_model(tmp_path / "other", seed=2)
    with pytest.raises(UserError, match="fit no other verifier"):
        describe_pair(find_pair(str(tmp_path / "other"), str(tmp_path / "shallow")))


class ConfigurationOnly(ModelSource):
    """A model of which nothing but the configuration is here."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__("models.verifier", "configuration", Path(), None, False)
        object.__setattr__(self, "_config", config)

    def config(self) -> PreTrainedConfig:
        config: PreTrainedConfig = self.__dict__["_config"]
        return config

    def weight_files(self) -> list[Path]:
        return []


SERIES: dict[str, Any] = {"vocab_size": 151936, "num_key_value_heads": 2, "tie_word_embeddings": True}


@pytest.mark.parametrize(
    ("settings", "n_parameters", "flops"),
    [
        (
            {"hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16},
            3_085_938_688,
            6_171_394_048,
        ),
        (
            {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14},
            494_032_768,
            987_922_432,
        ),
    ],
)
def test_the_series_models(settings: dict[str, int], n_parameters: int, flops: int) -> None:
    size = describe(ConfigurationOnly(Qwen2Config(**SERIES, **settings))).size
    assert size.n_parameters == n_parameters
    assert flops_per_token(size.dimensions) == flops
    assert size.dimensions.n_heads == settings["num_attention_heads"]
    layers, head_size = settings["num_hidden_layers"], settings["hidden_size"] // settings["num_attention_heads"]
    assert size.dimensions.key_value_elements == layers * 2 * 2 * head_size


def test_sliding_windows_by_layer() -> None:
    few: dict[str, Any] = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    assert describe(ConfigurationOnly(MistralConfig(**few, sliding_window=8))).sliding_windows == [8] * 4
    assert describe(ConfigurationOnly(small_llama())).sliding_windows == [None] * 2
    mixed = Gemma3TextConfig(**few, head_dim=8, sliding_window=8, sliding_window_pattern=2)
    assert describe(ConfigurationOnly(mixed)).sliding_windows == [8, None, 8, None]


def test_a_layer_that_borrows_keys_sees_what_their_layer_sees() -> None:
    few = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = Gemma3nTextConfig(
        **few,
        vocab_size=64,
        vocab_size_per_layer_input=64,
        head_dim=8,
        num_hidden_layers=4,
        num_kv_shared_layers=2,
        layer_types=["sliding_attention", "full_attention"] * 2,
        sliding_window=8,
        activation_sparsity_pattern=[0.0] * 4,
    )
    assert describe(ConfigurationOnly(config)).sliding_windows == [8, None, 8, None]


def test_a_configuration_of_no_language_model_is_a_line() -> None:
    with pytest.raises(UserError, match=r"models\.verifier=configuration cannot be loaded: "):
        describe(ConfigurationOnly(PreTrainedConfig()))
