"""Shallow drafts: a head over frequent ids, weights shared with the verifier, damage said in a line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_checkpoints import N_TOKENS, edit_json, save_model, small_llama
from torch import Tensor
from transformers import PreTrainedModel, Qwen2Config

from specstudy.errors import UserError
from specstudy.formulas import flops_per_token
from specstudy.models import shallow
from specstudy.models.fingerprint import fingerprint_of
from specstudy.models.load import Pair, load_pair
from specstudy.models.shallow import FrequentIdsHead, distillation

CPU = torch.device("cpu")
HEAD_IDS = torch.tensor([3, 7, 100, N_TOKENS - 1, 0])


@pytest.fixture
def verifier_directory(tmp_path: Path) -> Path:
    save_model(tmp_path / "verifier", small_llama(num_hidden_layers=3))
    return tmp_path / "verifier"


@pytest.fixture
def draft_directory(tmp_path: Path, verifier_directory: Path) -> Path:
    """A draft of two layers with weights of its own."""
    body = save_model(tmp_path / "body", small_llama(num_hidden_layers=2), seed=1).model.float()
    card: dict[str, object] = {
        "verifier": "verifier",
        "verifier_sha256": fingerprint_of([verifier_directory / "model.safetensors"]),
        "n_layers": 2,
        "training": {"anything": "else"},
    }
    shallow.save_shallow_draft(tmp_path / "draft", body, HEAD_IDS, card)
    return tmp_path / "draft"


def load(verifier: Path, draft: Path, dtype: torch.dtype = torch.float32, *, pack: bool = True) -> Pair:
    return load_pair(str(verifier), str(draft), CPU, dtype, pack=pack)


class TestFrequentIdsHead:
    embedding = torch.randn(11, 4, generator=torch.Generator().manual_seed(0))

    @pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (0, 4)])
    def test_logits_are_the_embeddings_where_there_are_any_and_minus_infinity_elsewhere(
        self, shape: tuple[int, ...]
    ) -> None:
        ids = torch.tensor([9, 2, 5])
        hidden = torch.randn(shape)
        logits = FrequentIdsHead(self.embedding, ids)(hidden)
        assert logits.shape == (*shape[:-1], 11)
        assert torch.allclose(logits[..., ids], hidden @ self.embedding[ids].T)
        others = [i for i in range(11) if i not in ids.tolist()]
        assert (logits[..., others] == -torch.inf).all()
        assert (logits.softmax(-1)[..., others] == 0).all()

    def test_all_ids_give_the_full_head(self) -> None:
        hidden = torch.randn(3, 4)
        logits = FrequentIdsHead(self.embedding, torch.arange(11))(hidden)
        assert torch.allclose(logits, hidden @ self.embedding.T)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_precision_is_the_hidden_states(self, dtype: torch.dtype) -> None:
        head = FrequentIdsHead(self.embedding.to(dtype), torch.tensor([1, 2], dtype=torch.int32))
        assert head(torch.randn(3, 4, dtype=dtype)).dtype == dtype

    @pytest.mark.parametrize("ids", [[], [1, 1], [-1], [11]])
    def test_ids_must_be_distinct_rows(self, ids: list[int]) -> None:
        with pytest.raises(ValueError, match="not distinct ids below 11"):
            FrequentIdsHead(self.embedding, torch.tensor(ids))

    def test_it_has_no_weights_of_its_own(self) -> None:
        head = FrequentIdsHead(self.embedding, torch.tensor([1]))
        assert list(head.parameters()) == []
        assert head.state_dict() == {}


def logits_of(model: PreTrainedModel, ids: list[int]) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = model(input_ids=torch.tensor([ids])).logits[0]
    return logits


class TestLoading:
    def test_it_computes_what_was_saved(self, verifier_directory: Path, draft_directory: Path, tmp_path: Path) -> None:
        pair = load(verifier_directory, draft_directory)
        # The body that was saved, between the verifier's embedding and output head.
        expected = load(tmp_path / "body", tmp_path / "body").verifier.module
        expected.set_input_embeddings(pair.verifier.module.get_input_embeddings())
        expected.set_output_embeddings(pair.verifier.module.get_output_embeddings())
        logits = logits_of(pair.draft.module, [5, 8, 13, 21])
        wanted = logits_of(expected, [5, 8, 13, 21])
        assert torch.allclose(logits[:, HEAD_IDS], wanted[:, HEAD_IDS], atol=1e-5)
        assert torch.isinf(logits).sum() == 4 * (N_TOKENS - len(HEAD_IDS))

    def test_it_shares_the_verifiers_weights(self, verifier_directory: Path, draft_directory: Path) -> None:
        pair = load(verifier_directory, draft_directory, pack=False)
        draft, verifier = pair.draft.module, pair.verifier.module
        assert draft.get_input_embeddings() is verifier.get_input_embeddings()
        assert torch.equal(draft.lm_head.weight, verifier.get_output_embeddings().weight[HEAD_IDS])
        assert not any(t.is_meta for t in [*draft.parameters(), *draft.buffers()])
        assert not any(p.requires_grad for p in draft.parameters())
        assert len(verifier.model.layers) == 3

    def test_what_the_study_needs_to_know_of_it(self, verifier_directory: Path, draft_directory: Path) -> None:
        pair = load(verifier_directory, draft_directory)
        assert pair.draft.name == "draft"
        assert pair.draft.note == "2 layers distilled from verifier"
        assert pair.draft.fingerprint == fingerprint_of([draft_directory / shallow.WEIGHTS])
        assert (pair.draft.vocabulary, pair.draft.n_emittable) == (N_TOKENS, N_TOKENS)
        assert (pair.draft.dimensions.n_layers, pair.draft.dimensions.output_rows) == (2, 5)
        layer = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48
        assert flops_per_token(pair.draft.dimensions) == 2 * (2 * layer + 5 * 32)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    def test_it_follows_the_verifiers_precision(
        self, verifier_directory: Path, draft_directory: Path, dtype: torch.dtype
    ) -> None:
        pair = load(verifier_directory, draft_directory, dtype)
        assert {p.dtype for p in pair.draft.module.parameters()} == {dtype}
        assert logits_of(pair.draft.module, [1, 2]).dtype == dtype

    def test_layer_types_are_cut_with_the_layers(self, tmp_path: Path) -> None:
        kinds = ["full_attention", "sliding_attention", "full_attention"]
        settings = small_llama(num_hidden_layers=3).to_diff_dict()
        verifier = save_model(tmp_path / "verifier", Qwen2Config(**{**settings, "layer_types": kinds}))
        settings |= {"num_hidden_layers": 2, "layer_types": kinds[:2]}
        body = save_model(tmp_path / "body", Qwen2Config(**settings)).model
        sha256 = fingerprint_of([tmp_path / "verifier" / "model.safetensors"])
        card: dict[str, object] = {"verifier": "v", "verifier_sha256": sha256, "n_layers": 2}
        shallow.save_shallow_draft(tmp_path / "draft", body, HEAD_IDS, card)
        _, draft = shallow.load_shallow_draft(tmp_path / "draft", verifier, sha256)
        assert draft.config.layer_types == kinds[:2]
        assert verifier.config.layer_types == kinds


class TestRefusals:
    def refusal(self, verifier: Path, draft: Path) -> str:
        with pytest.raises(UserError) as refused:
            load(verifier, draft)
        assert "\n" not in str(refused.value)
        assert str(refused.value).startswith(f"models.draft={draft}: ")
        return str(refused.value)

    def test_another_verifier(self, draft_directory: Path, tmp_path: Path) -> None:
        save_model(tmp_path / "other", small_llama(num_hidden_layers=3), seed=9)
        assert "were cut from verifier and fit no other" in self.refusal(tmp_path / "other", draft_directory)

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda card: card.write_text("{"),
            lambda card: card.write_text("[]"),
            lambda card: card.write_bytes(b"\xff"),
            lambda card: card.write_text('{"n_layers": 2}'),
            lambda card: edit_json(card, n_layers="two"),
            lambda card: edit_json(card, n_layers=None),
        ],
    )
    def test_a_damaged_card(
        self, verifier_directory: Path, draft_directory: Path, spoil: Callable[[Path], object]
    ) -> None:
        spoil(draft_directory / shallow.CARD)
        assert "draft.json is damaged" in self.refusal(verifier_directory, draft_directory)

    @pytest.mark.parametrize("n_bytes", [None, 0, 100, -1])
    def test_weights_cut_off_or_away(
        self, verifier_directory: Path, draft_directory: Path, n_bytes: int | None
    ) -> None:
        weights = draft_directory / shallow.WEIGHTS
        content = weights.read_bytes()
        weights.unlink()
        if n_bytes is not None:
            weights.write_bytes(content[:n_bytes])
        assert "draft.safetensors is damaged" in self.refusal(verifier_directory, draft_directory)

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda tensors: tensors.pop("head_ids"),
            lambda tensors: tensors.pop("norm.weight"),
            lambda tensors: tensors.pop("layers.1.mlp.up_proj.weight"),
            lambda tensors: tensors.update({"layers.2.mlp.up_proj.weight": torch.zeros(2)}),
            lambda tensors: tensors.update({"norm.weight": torch.zeros(7)}),
            lambda tensors: tensors.update({"head_ids": torch.tensor([0, N_TOKENS], dtype=torch.int32)}),
            lambda tensors: tensors.update({"head_ids": torch.tensor([0, -1], dtype=torch.int32)}),
            lambda tensors: tensors.update({"head_ids": torch.tensor([4, 4], dtype=torch.int32)}),
            lambda tensors: tensors.update({"head_ids": torch.zeros(0, dtype=torch.int32)}),
        ],
    )
    def test_weights_that_do_not_fit(
        self, verifier_directory: Path, draft_directory: Path, spoil: Callable[[dict[str, Tensor]], object]
    ) -> None:
        tensors = load_file(draft_directory / shallow.WEIGHTS)
        spoil(tensors)
        save_file(tensors, draft_directory / shallow.WEIGHTS)
        assert "draft.safetensors is damaged" in self.refusal(verifier_directory, draft_directory)


class TestSaving:
    def test_only_layers_norm_and_head_ids_are_shipped_in_bfloat16(self, draft_directory: Path) -> None:
        tensors = load_file(draft_directory / shallow.WEIGHTS)
        assert {name.split(".")[0] for name in tensors} == {"layers", "norm", "head_ids"}
        assert {t.dtype for name, t in tensors.items() if name != "head_ids"} == {torch.bfloat16}
        assert tensors["head_ids"].tolist() == HEAD_IDS.tolist()
        assert json.loads((draft_directory / shallow.CARD).read_text())["training"] == {"anything": "else"}

    def test_a_save_that_is_cut_off_leaves_no_draft(
        self, draft_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full_disk(*_: object) -> None:
            raise OSError("no space left")

        assert shallow.is_shallow_draft(draft_directory)
        body = save_model(tmp_path / "again", small_llama(num_hidden_layers=2)).model
        monkeypatch.setattr(shallow, "save_file", full_disk)
        with pytest.raises(OSError, match="no space"):
            shallow.save_shallow_draft(draft_directory, body, HEAD_IDS, {})
        assert not shallow.is_shallow_draft(draft_directory)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"training": {"steps": 30, "examples_per_step": 6}, "n_trained_tokens": 4_000}, (180, 4_000)),
        ({"training": {"steps": 30, "examples_per_step": 6}}, (180, None)),
        ({}, (None, None)),
    ],
)
def test_how_a_draft_was_made_as_far_as_its_card_says(
    told: dict[str, Any], expected: tuple[int | None, int | None], tmp_path: Path
) -> None:
    card = {"n_layers": 2, "verifier": "v", "verifier_sha256": "0"} | told
    (tmp_path / "draft.json").write_text(json.dumps(card))
    names = ("n_layers", "n_training_answers", "n_training_tokens")
    assert distillation(tmp_path) == dict(zip(names, (2, *expected), strict=True))
