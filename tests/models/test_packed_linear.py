"""Packed linear layers: the same values, everything else of the model as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
import torch
from small_checkpoints import N_TOKENS, save_model, small_llama
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.models.llama.modeling_llama import LlamaMLP

from specstudy.models import device as devices
from specstudy.models.device import multiplies_packed_weights
from specstudy.models.early_exit import first_layers
from specstudy.models.load import Pair, load_pair
from specstudy.models.packed_linear import PackedLinear, pack_linear_layers, packed, product, unpack_linear_layers
from specstudy.models.shallow import FrequentIdsHead

CPU = torch.device("cpu")
HERE = [dtype for dtype in (torch.bfloat16, torch.float32) if multiplies_packed_weights(CPU, dtype)]
DTYPE = HERE[0] if HERE else torch.bfloat16
ROUNDING = {torch.bfloat16: 2.0**-7, torch.float32: 2.0**-18}[DTYPE]
WIDE = {"hidden_size": 128, "intermediate_size": 96}
where_there_are_operators = pytest.mark.skipif(not HERE, reason="weights are not packed on this machine")


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DTYPE)


@where_there_are_operators
class TestProduct:
    @pytest.mark.parametrize("n_rows", [1, 2, 5, 9, 17, 65])
    @pytest.mark.parametrize("with_bias", [False, True])
    @pytest.mark.parametrize(("n_out", "n_in"), [(96, 64), (1, 64), (257, 33)])
    def test_it_is_that_of_the_plain_weight(self, n_rows: int, with_bias: bool, n_out: int, n_in: int) -> None:
        weight, hidden = random(n_out, n_in), random(1, n_rows, n_in, seed=1)
        bias = random(n_out, seed=2) if with_bias else None
        exact = nn.functional.linear(hidden.double(), weight.double(), None if bias is None else bias.double())
        torch.testing.assert_close(product(hidden, packed(weight), bias).double(), exact, rtol=ROUNDING, atol=1e-2)

    def test_of_hidden_states_that_lie_apart_in_memory_or_are_none(self) -> None:
        weight, hidden = random(96, 64), random(2, 10, 128, seed=1)[:, 1::3, ::2]
        assert not hidden.is_contiguous()
        torch.testing.assert_close(product(hidden, packed(weight)), nn.functional.linear(hidden, weight))
        assert product(hidden[:, :0], packed(weight)).shape == (2, 0, 96)

    def test_not_a_number_stays_one(self) -> None:
        weight = random(96, 64)
        weight[3, 5] = torch.nan
        output = product(random(1, 2, 64, seed=1), packed(weight))
        assert output[..., 3].isnan().all()
        assert output.isnan().sum() == 2

    def test_a_plain_weight_is_multiplied_as_it_is(self) -> None:
        weight, hidden = random(96, 64), random(3, 64, seed=1)
        assert torch.equal(product(hidden, weight), nn.functional.linear(hidden, weight))


@where_there_are_operators
class TestPackedModel:
    @pytest.fixture
    def pairs(self, tmp_path: Path) -> tuple[Pair, Pair]:
        """The same models packed and plain: a verifier with a tied head, a draft with a head of its own."""
        save_model(tmp_path / "verifier", small_llama(num_hidden_layers=3, tie_word_embeddings=True, **WIDE))
        save_model(tmp_path / "draft", small_llama(attention_bias=True, **WIDE), seed=1)
        names = str(tmp_path / "verifier"), str(tmp_path / "draft")
        ours = load_pair(*names, CPU, DTYPE)
        return ours, load_pair(*names, CPU, DTYPE, pack=False)

    def test_it_says_so(self, pairs: tuple[Pair, Pair]) -> None:
        assert [model.linear_layers for model in (pairs[0].verifier, pairs[0].draft)] == ["packed", "packed"]
        assert [model.linear_layers for model in (pairs[1].verifier, pairs[1].draft)] == ["plain", "plain"]

    def test_every_linear_layer_is_packed_and_gives_its_weight_back(self, pairs: tuple[Pair, Pair]) -> None:
        for ours, plain in ((pairs[0].verifier, pairs[1].verifier), (pairs[0].draft, pairs[1].draft)):
            others = dict(plain.module.named_modules())
            layers = {name: part for name, part in ours.module.named_modules() if isinstance(part, nn.Linear)}
            assert len(layers) == 7 * len(plain.module.model.layers) + 1
            for name, layer in layers.items():
                assert isinstance(layer, PackedLinear), name
                assert torch.equal(layer.weight.to_dense(), others[name].weight), name
                assert layer.weight.shape == others[name].weight.shape
                assert (layer.in_features, layer.out_features) == (others[name].in_features, others[name].out_features)
            assert torch.equal(ours.module.get_input_embeddings().weight, plain.module.get_input_embeddings().weight)

    def test_the_logits_are_the_same_to_rounding(self, pairs: tuple[Pair, Pair]) -> None:
        ids = torch.arange(1, 20)[None]
        with torch.inference_mode():
            for ours, plain in ((pairs[0].verifier, pairs[1].verifier), (pairs[0].draft, pairs[1].draft)):
                expected = plain.module(ids).logits
                assert expected.std() > 0.1
                torch.testing.assert_close(ours.module(ids).logits, expected, rtol=2 * ROUNDING, atol=2e-2)

    def test_unpacked_it_is_as_it_was(self, pairs: tuple[Pair, Pair]) -> None:
        for ours, plain in ((pairs[0].verifier, pairs[1].verifier), (pairs[0].draft, pairs[1].draft)):
            unpack_linear_layers(ours.module)
            assert ours.linear_layers == "plain"
            assert ours.module.state_dict().keys() == plain.module.state_dict().keys()
            for name, weight in plain.module.state_dict().items():
                assert torch.equal(ours.module.state_dict()[name], weight), name

    def test_a_class_that_reads_a_weight_itself_is_left_plain(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As LongcatFlash does in its routers."""

        def forward(self: LlamaMLP, hidden: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(hidden, self.down_proj.weight.T[:0]).sum() + as_published(self, hidden)

        as_published = LlamaMLP.forward
        monkeypatch.setattr(LlamaMLP, "forward", forward)
        save_model(tmp_path, small_llama(**WIDE))
        pair = load_pair(str(tmp_path), str(tmp_path), CPU, DTYPE)
        assert [pair.verifier.linear_layers, pair.draft.linear_layers] == ["plain", "plain"]
        assert pair.verifier.module(torch.arange(1, 9)[None]).logits.isfinite().all()

    def test_what_the_model_is_said_to_be_does_not_change(self, pairs: tuple[Pair, Pair]) -> None:
        for ours, plain in ((pairs[0].verifier, pairs[1].verifier), (pairs[0].draft, pairs[1].draft)):
            assert ours.fingerprint == plain.fingerprint
            assert ours.dimensions == plain.dimensions
            assert (ours.dtype, ours.device) == (DTYPE, CPU)

    def test_its_first_layers_are_packed_too(self, pairs: tuple[Pair, Pair]) -> None:
        ids = torch.arange(1, 9)[None]
        with torch.inference_mode():
            ours, plain = (first_layers(pair.verifier, 2).module(ids).logits for pair in pairs)
        torch.testing.assert_close(ours, plain, rtol=2 * ROUNDING, atol=2e-2)


@where_there_are_operators
def test_a_head_over_few_ids() -> None:
    head = FrequentIdsHead(random(50, 16), torch.tensor([40, 3, 7]))
    hidden = random(1, 2, 16, seed=1)
    plain = head(hidden)
    head.pack()
    torch.testing.assert_close(head(hidden), plain, rtol=ROUNDING, atol=1e-2)
    assert head.weight.shape == (3, 16)


@where_there_are_operators
def test_other_precisions_and_other_kinds_of_layer_stay() -> None:
    full = tiny.llama().module.half()
    pack_linear_layers(full)
    assert not any(isinstance(part, PackedLinear) for part in full.modules())

    class Scaled(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(input)

    parts = nn.Sequential(Scaled(4, 64).to(DTYPE), nn.Linear(64, 64).to(DTYPE), nn.Linear(64, 63).to(DTYPE))
    pack_linear_layers(parts)
    assert [type(part) for part in parts] == [Scaled, PackedLinear, nn.Linear]

    # GPT-2's matrices are no linear layers; its head is.
    gpt2 = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=N_TOKENS)).to(DTYPE).eval()
    ids = torch.arange(1, 9)[None]
    with torch.inference_mode():
        expected = gpt2(ids).logits
        pack_linear_layers(gpt2)
        torch.testing.assert_close(gpt2(ids).logits, expected, rtol=ROUNDING, atol=1e-2)
    assert [name for name, part in gpt2.named_modules() if isinstance(part, PackedLinear)] == ["lm_head"]


class TestWherePackedWeightsAreMultiplied:
    @pytest.mark.parametrize(
        ("device", "dtype"),
        [("cpu", torch.float16), ("cuda", torch.bfloat16), ("mps", torch.bfloat16), ("cuda", torch.float32)],
    )
    def test_nowhere_but_on_a_cpu_in_bfloat16_or_float32(self, device: str, dtype: torch.dtype) -> None:
        assert not multiplies_packed_weights(torch.device(device), dtype)

    @pytest.mark.parametrize(
        ("owner", "name", "value"),
        [
            (devices.platform, "machine", lambda: "arm64"),
            (torch.backends.mkldnn, "is_available", lambda: False),
        ],
    )
    def test_not_on_another_cpu(self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, value: object) -> None:
        monkeypatch.setattr(devices, "has_native_bfloat16", lambda: True)
        monkeypatch.setattr(owner, name, value)
        assert not multiplies_packed_weights(CPU, DTYPE)

    @pytest.mark.parametrize(
        ("dtype", "capability", "native", "expected"),
        [
            (torch.bfloat16, "AVX512", True, True),
            (torch.bfloat16, "AVX2", False, False),
            (torch.float32, "AVX2", False, True),
            (torch.float32, "AVX512", True, False),
            (torch.float32, "DEFAULT", False, False),
        ],
    )
    def test_in_the_precision_that_the_cpu_is_best_at(
        self, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, capability: str, native: bool, expected: bool
    ) -> None:
        monkeypatch.setattr(devices.platform, "machine", lambda: "x86_64")
        monkeypatch.setattr(devices, "has_native_bfloat16", lambda: native)
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
        assert multiplies_packed_weights(CPU, dtype) is (expected and torch.backends.mkldnn.is_available())

    @where_there_are_operators
    @pytest.mark.parametrize("missing", ["_reorder_linear_weight", "_linear_pointwise"])
    def test_not_where_torch_lacks_an_operator(self, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
        class Without:
            def __getattr__(self, name: str) -> object:
                if name == missing:
                    raise AttributeError(name)
                return object()

        monkeypatch.setattr(torch.ops, "mkldnn", Without())
        assert not multiplies_packed_weights(CPU, DTYPE)
