"""Models found, refused in one line, and loaded whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub.errors import GatedRepoError, HTTPError, LocalEntryNotFoundError, RepositoryNotFoundError
from safetensors.torch import load_file, save_file
from small_checkpoints import END_ID, N_TOKENS, edit_json, save_model, small_llama, small_tokenizer, write_gguf
from tokenizers import Tokenizer, models
from transformers import (
    AutoModelForCausalLM,
    PreTrainedTokenizerFast,
)

from specstudy.errors import UserError
from specstudy.models import sources
from specstudy.models.device import DeviceMemory
from specstudy.models.embedded import NAME, packaged_gguf
from specstudy.models.fingerprint import fingerprint_of
from specstudy.models.load import Pair, find_pair, load_pair, refuse_unless_weights_fit
from specstudy.models.sources import existing_path, find_source

CPU = torch.device("cpu")


def load(verifier: Path | str, draft: Path | str, dtype: torch.dtype = torch.float32, **others: Any) -> Pair:
    return load_pair(str(verifier), str(draft), CPU, dtype, **others)


def refusal(verifier: Path | str, draft: Path | str | None = None, **others: Any) -> str:
    with pytest.raises(UserError) as refused:
        load(verifier, draft or verifier, **others)
    message = str(refused.value)
    assert "\n" not in message
    assert len(message) < 700
    assert message.startswith("models.draft=" if draft else "models.verifier=")
    return message


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def no_weights_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object, **__: object) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", load)


class TestLoading:
    def test_a_pair_of_directories(self, tmp_path: Path) -> None:
        written = save_model(tmp_path / "verifier", seed=1)
        save_model(tmp_path / "draft", small_llama(num_hidden_layers=1, max_position_embeddings=32))
        pair = load(tmp_path / "verifier", tmp_path / "draft", torch.bfloat16, pack=False)
        assert pair.verifier.module.state_dict().keys() == written.state_dict().keys()
        for name, tensor in written.state_dict().items():
            assert torch.equal(pair.verifier.module.state_dict()[name], tensor), name
        assert not any(p.requires_grad for p in pair.verifier.module.parameters())
        assert not pair.verifier.module.training
        assert (pair.verifier.dtype, pair.verifier.device) == (torch.bfloat16, CPU)
        assert pair.verifier.vocabulary == pair.verifier.n_emittable == N_TOKENS
        assert pair.verifier.unused_ids is None
        assert pair.verifier.name == str(tmp_path / "verifier")
        assert (pair.verifier.note, pair.eos_ids) == ("", (END_ID,))
        assert pair.draft.dimensions.n_layers == 1
        assert (pair.verifier.context_length, pair.draft.context_length, pair.context_length) == (64, 32, 32)

    def test_padded_vocabularies_may_differ_and_are_cut_off(self, tmp_path: Path) -> None:
        save_model(tmp_path / "verifier", small_llama(n_rows=264))
        save_model(tmp_path / "draft", small_llama(n_rows=300))
        pair = load(tmp_path / "verifier", tmp_path / "draft")
        logits = pair.draft.module(torch.tensor([[1, 2, 3]])).logits
        assert logits.shape == (1, 3, 300)
        emittable = pair.draft.emittable_logits(logits.bfloat16())
        assert emittable.shape == (1, 3, N_TOKENS)
        assert emittable.dtype == torch.float32
        assert torch.equal(emittable, logits.bfloat16()[..., :N_TOKENS].float())

    def test_ids_that_stand_for_nothing_are_masked(self, tmp_path: Path) -> None:
        holes = Tokenizer(models.WordLevel({"a": 0, "b": 2, "?": 5}, unk_token="?"))
        save_model(tmp_path, small_llama(n_rows=8), PreTrainedTokenizerFast(tokenizer_object=holes))
        verifier = load(tmp_path, tmp_path).verifier
        assert (verifier.vocabulary, verifier.n_emittable) == (6, 3)
        probabilities = verifier.emittable_logits(torch.randn(4, 8)).softmax(-1)
        assert (probabilities[:, [1, 3, 4]] == 0).all()
        assert (probabilities[:, [0, 2, 5]] > 0).all()

    def test_a_token_without_a_row_cannot_be_emitted(self, tmp_path: Path) -> None:
        tokenizer = small_tokenizer()
        tokenizer.add_tokens(["<extra>"])
        save_model(tmp_path, tokenizer=tokenizer)
        assert load(tmp_path, tmp_path).verifier.vocabulary == N_TOKENS

    @pytest.mark.parametrize(
        ("in_config", "in_generation_config", "in_tokenizer", "expected"),
        [
            (5, None, None, (5,)),
            ([7, 6], None, None, (6, 7)),
            (5, [8, 5], "<|im_end|>", (5, 8, END_ID)),
            (None, None, None, ()),
        ],
    )
    def test_all_ends_of_text(
        self,
        model: Path,
        in_config: int | list[int] | None,
        in_generation_config: int | list[int] | None,
        in_tokenizer: str | None,
        expected: tuple[int, ...],
    ) -> None:
        edit_json(model / "config.json", eos_token_id=in_config)
        edit_json(model / "generation_config.json", eos_token_id=in_generation_config, temperature=0.6, do_sample=True)
        edit_json(model / "tokenizer_config.json", eos_token=in_tokenizer)
        pair = load(model, model)
        assert pair.eos_ids == expected
        assert pair.verifier.stored_generation_settings["temperature"] == 0.6

    def test_a_gguf_and_a_directory_of_one_tokenizer(self, model: Path, tmp_path: Path) -> None:
        write_gguf(tmp_path / "small.gguf", n_padding=6)
        pair = load(tmp_path / "small.gguf", model)
        verifier = pair.verifier
        assert verifier.dimensions.output_rows == N_TOKENS + 6
        assert (verifier.vocabulary, verifier.n_emittable) == (N_TOKENS, N_TOKENS)
        assert verifier.note == "GGUF, dequantised"
        assert pair.eos_ids == (END_ID,)
        assert verifier.fingerprint == fingerprint_of([tmp_path / "small.gguf"])
        assert pair.tokenizer.decode(pair.tokenizer("the <|im_end|> ñ")["input_ids"]) == "the <|im_end|> ñ"

    @pytest.mark.long
    def test_the_packaged_gguf_is_the_embedded_model(self) -> None:
        # Half a minute: dequantises 135 million weights.
        pair = load(NAME, packaged_gguf(), torch.bfloat16, pack=False)
        assert pair.verifier.name == "SmolLM2-135M-Instruct"
        assert pair.verifier.note == "Q4_1, dequantised"
        for name, tensor in pair.verifier.module.state_dict().items():
            assert torch.equal(pair.draft.module.state_dict()[name], tensor), name

    def test_paths_start_at_the_project(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.chdir(tmp_path)
        assert existing_path("conf/models") == sources.local_path("conf/models")
        assert existing_path("conf/nothing") is None
        for impossible in ("x" * 5000, "~nobody-of-this-name/x", "a\0b"):
            assert existing_path(impossible) is None


class TestFingerprint:
    def test_it_is_that_of_the_weights_whatever_they_run_in(self, model: Path) -> None:
        expected = fingerprint_of([model / "model.safetensors"])
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            assert load(model, model, dtype).verifier.fingerprint == expected

    def test_it_does_not_matter_how_the_files_are_split(self, tmp_path: Path) -> None:
        save_model(tmp_path / "one")
        save_model(tmp_path / "many", max_shard_size="20KB")
        files = find_source(str(tmp_path / "many"), "k").weight_files()
        assert len(files) > 2
        assert fingerprint_of(files) == fingerprint_of([tmp_path / "one" / "model.safetensors"])

    def test_every_weight_counts(self, model: Path, tmp_path: Path) -> None:
        tensors = load_file(model / "model.safetensors")
        seen = {fingerprint_of([model / "model.safetensors"])}
        for name, tensor in tensors.items():
            changed = tensor.clone()
            changed.view(torch.int16).flatten()[-1] ^= 1
            save_file({**tensors, name: changed}, tmp_path / "changed.safetensors")
            seen.add(fingerprint_of([tmp_path / "changed.safetensors"]))
        assert len(seen) == len(tensors) + 1

    def test_names_shapes_and_types_count(self, tmp_path: Path) -> None:
        values = torch.arange(6, dtype=torch.int16)
        variants = [
            {"a": values},
            {"b": values},
            {"a": values.view(2, 3)},
            {"a": values.view(torch.float16)},
            {"a": values[:3].clone(), "b": values[3:].clone()},
        ]
        seen = set()
        for tensors in variants:
            save_file(tensors, tmp_path / "t.safetensors")
            seen.add(fingerprint_of([tmp_path / "t.safetensors"]))
        assert len(seen) == len(variants)


class TestRefusals:
    def test_another_tokenizer_names_the_first_difference(
        self, model: Path, tmp_path: Path, no_weights_load: None
    ) -> None:
        other = small_tokenizer()
        spelled = json.loads(other.backend_tokenizer.to_str())
        vocabulary = spelled["model"]["vocab"]
        vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
        swapped = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(spelled)))
        save_model(tmp_path / "swapped", tokenizer=swapped)
        first = min(vocabulary["a"], vocabulary["b"])
        assert f"id {first} is 'b' in the draft" in refusal(model, tmp_path / "swapped")

    def test_a_tokenizer_with_a_token_more(self, model: Path, tmp_path: Path, no_weights_load: None) -> None:
        longer = small_tokenizer()
        longer.add_tokens(["<extra>"])
        save_model(tmp_path / "longer", small_llama(n_rows=264), longer)
        assert f"id {N_TOKENS} is '<extra>' in the draft" in refusal(model, tmp_path / "longer")

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("./nothing", "no such directory or file"),
            ("/nothing/at/all", "no such directory or file"),
            ("~/nothing at all", "no such directory or file"),
            ("some/deep/path", "no such directory or file"),
            ("model.gguf", "no such directory or file"),
            ("two words", "nor the form of a Hub id"),
            ("embedded:smollm3", "did you mean embedded:smollm2?"),
            ("pyproject.toml", "is a file but not a .gguf"),
        ],
    )
    def test_names_of_nothing(self, name: str, said: str) -> None:
        assert said in refusal(name)

    @pytest.mark.parametrize(
        ("spoil", "said"),
        [
            (lambda m: (m / "model.safetensors").unlink(), "there is no model.safetensors"),
            (lambda m: (m / "config.json").unlink(), "there is no config.json"),
            (lambda m: (m / "config.json").write_text("{"), "config.json"),
            (lambda m: edit_json(m / "config.json", model_type="of-my-own"), "of-my-own"),
            (lambda m: edit_json(m / "config.json", model_type="t5"), "cannot be loaded"),
            (lambda m: (m / "model.safetensors").rename(m / "pytorch_model.bin"), "can run code when loaded"),
            (lambda m: (m / "model.safetensors").rename(m / "model-Q4.gguf"), "name the file itself"),
            (lambda m: [p.unlink() for p in m.glob("*.json")] and write_gguf(m / "a.gguf"), "name the file itself"),
            (lambda m: (m / "tokenizer.json").unlink(), "cannot be loaded"),
            (lambda m: (m / "tokenizer.json").write_text("{}"), "cannot be loaded"),
        ],
    )
    def test_spoilt_directories(
        self, model: Path, spoil: Callable[[Path], object], said: str, no_weights_load: None
    ) -> None:
        spoil(model)
        assert said in refusal(model)

    @pytest.mark.parametrize("n_bytes", [0, 4, 200, -1])
    def test_cut_off_weights(self, model: Path, n_bytes: int, no_weights_load: None) -> None:
        content = (model / "model.safetensors").read_bytes()
        (model / "model.safetensors").write_bytes(content[:n_bytes])
        assert "model.safetensors is damaged or cut off" in refusal(model)

    def test_a_damaged_draft_is_seen_before_the_verifier_loads(
        self, model: Path, tmp_path: Path, no_weights_load: None
    ) -> None:
        save_model(tmp_path / "draft")
        (tmp_path / "draft" / "model.safetensors").write_bytes(b"half")
        assert "model.safetensors is damaged or cut off" in refusal(model, tmp_path / "draft")

    def test_a_missing_part_of_the_weights(self, tmp_path: Path, no_weights_load: None) -> None:
        save_model(tmp_path, max_shard_size="20KB")
        last = sorted(tmp_path.glob("model-*.safetensors"))[-1]
        last.unlink()
        assert f"{last.name} is missing" in refusal(tmp_path)

    def test_weights_that_are_not_in_the_files(self, model: Path) -> None:
        tensors = load_file(model / "model.safetensors")
        del tensors["model.layers.1.mlp.up_proj.weight"]
        save_file(tensors, model / "model.safetensors", metadata={"format": "pt"})
        assert "the first model.layers.1.mlp.up_proj.weight" in refusal(model)

    def test_weights_of_another_shape(self, model: Path) -> None:
        edit_json(model / "config.json", intermediate_size=64)
        assert "cannot be loaded" in refusal(model)

    def test_a_cut_off_gguf(self, tmp_path: Path) -> None:
        write_gguf(tmp_path / "a.gguf")
        content = (tmp_path / "a.gguf").read_bytes()
        for n_bytes in (0, 100, len(content) - 10_000):
            (tmp_path / "a.gguf").write_bytes(content[:n_bytes])
            assert "cannot be loaded" in refusal(tmp_path / "a.gguf")

    @pytest.mark.parametrize(
        ("error", "said"),
        [
            (MemoryError(), "memory of this machine ran out"),
            (torch.OutOfMemoryError("CUDA out of memory."), "the memory of the GPU (nvidia-smi"),
            (
                RuntimeError("MPS backend out of memory (MPS allocated: 17 GB)"),
                "the memory of the GPU, which it shares",
            ),
        ],
    )
    def test_memory_that_runs_out_while_loading(
        self, model: Path, error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def load(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", load)
        assert said in refusal(model)

    def test_weights_that_the_device_cannot_hold(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        n_bytes = 2 * sum(tensor.numel() for tensor in load_file(model / "model.safetensors").values())
        found = find_pair(str(model), str(model))
        for total_bytes, dtype in ((4 * n_bytes, torch.float32), (2 * n_bytes, torch.bfloat16)):
            memory = DeviceMemory(total_bytes, None)
            monkeypatch.setattr("specstudy.models.load.device_memory", lambda device, memory=memory: memory)
            refuse_unless_weights_fit(found, CPU, dtype)
        with pytest.raises(UserError, match=r"need 0\.0 GiB in float32, cpu has 0\.0 GiB"):
            refuse_unless_weights_fit(found, CPU, torch.float32)

    def test_an_adapter_that_the_library_applied_unasked(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real = AutoModelForCausalLM.from_pretrained

        def load(*arguments: Any, **named: Any) -> Any:
            module, loading = real(*arguments, **named)
            module._hf_peft_config_loaded = True
            return module, loading

        monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", load)
        assert "adapter_config.json lies beside its weights" in refusal(model)


class TestForeignCode:
    @pytest.fixture
    def with_code(self, model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        """A model that brings a configuration class of its own, which leaves a file behind where it runs."""
        monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
        monkeypatch.syspath_prepend(tmp_path / "modules")
        (model / "configuration_own.py").write_text(
            f"open({str(tmp_path / 'was_run')!r}, 'w').close()\n"
            "from transformers import LlamaConfig\n"
            "class OwnConfig(LlamaConfig):\n    model_type = 'own'\n"
        )
        edit_json(model / "config.json", model_type="own", auto_map={"AutoConfig": "configuration_own.OwnConfig"})
        return model

    def test_it_is_not_run_unasked(self, with_code: Path, tmp_path: Path) -> None:
        assert "models.trust_remote_code=true" in refusal(with_code)
        assert not (tmp_path / "was_run").exists()

    def test_the_librarys_own_class_is_taken_where_there_is_one(self, with_code: Path, tmp_path: Path) -> None:
        edit_json(with_code / "config.json", model_type="llama")
        assert load(with_code, with_code).verifier.dimensions.n_layers == 2
        assert not (tmp_path / "was_run").exists()

    def test_it_is_run_when_trusted(self, with_code: Path, tmp_path: Path) -> None:
        find_source(str(with_code), "models.verifier", trust_remote_code=True).config()
        assert (tmp_path / "was_run").exists()


class Hub:
    """Stands in for the Hub's client: answers with a directory or an error, and counts what is asked."""

    def __init__(self, cached: Path | None, online: Path | Exception) -> None:
        self.cached = cached
        self.online = online
        self.n_asked_online = 0

    def __call__(self, name: str, allow_patterns: list[str], local_files_only: bool = False) -> str:
        if local_files_only:
            if self.cached is None:
                raise LocalEntryNotFoundError("not cached")
            return str(self.cached)
        self.n_asked_online += 1
        if isinstance(self.online, Exception):
            raise self.online
        return str(self.online)


ANSWER: Any = SimpleNamespace(headers={}, request=None)


class TestHub:
    @pytest.mark.parametrize(
        ("error", "said"),
        [
            (LocalEntryNotFoundError("no\nnetwork"), "`hf download some/model`"),
            (HTTPError("a proxy"), "cannot be reached for it"),
            (OSError("disk full"), "cannot be reached for it"),
            (RepositoryNotFoundError("404", response=ANSWER), "the Hub has no such public model"),
            (GatedRepoError("403", response=ANSWER), "`hf auth login`"),
        ],
        ids=["no network", "proxy", "disk", "not there", "gated"],
    )
    def test_what_cannot_be_fetched_is_a_line_without_a_second_try(
        self, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
    ) -> None:
        hub = Hub(None, error)
        monkeypatch.setattr(sources, "snapshot_download", hub)
        message = refusal("some/model")
        assert said in message
        assert message.startswith("models.verifier=some/model: ")
        assert hub.n_asked_online == 1

    def test_a_whole_copy_needs_no_network(self, monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
        hub = Hub(model, OSError("no network"))
        monkeypatch.setattr(sources, "snapshot_download", hub)
        assert load("some/model", "some/model").verifier.name == "some/model"
        assert hub.n_asked_online == 0

    def test_half_a_copy_is_fetched_again(self, monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path) -> None:
        save_model(tmp_path / "half", max_shard_size="20KB")
        next((tmp_path / "half").glob("model-*.safetensors")).unlink()
        shutil.copytree(model, tmp_path / "no weights", ignore=shutil.ignore_patterns("*.safetensors"))
        for half in ("half", "no weights"):
            hub = Hub(tmp_path / half, model)
            monkeypatch.setattr(sources, "snapshot_download", hub)
            assert find_source("some/model", "models.verifier").directory == model
            assert hub.n_asked_online == 1
