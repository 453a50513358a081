"""Every stage does only what Apple's MPS can do, seen without a Mac."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from decode import DECODE
from mps_rules import FALLBACKS, NotOnMpsError, allowed_fallbacks, operations_on_mps, under_mps_rules
from prefill import PREFILL
from speculate import SPECULATE
from stages import Stage, Unit
from tiny_study import PROMPTS, configuration, tiny_pair

from specstudy.models.load import Pair
from specstudy.prompts import Prompt, render

SETTINGS = {
    "sampling": [],
    "greedy": ["decode.temperature=0"],
    "whole distribution": ["decode.top_p=1", "decode.temperature=1"],
    "prompt look-up": ["spec.proposer=prompt_lookup"],
    "early exit": ["spec.proposer=early_exit", "spec.exit_layers=1"],
    "stop by entropy": ["spec.stop=entropy"],
    "stop by bound": ["spec.stop=bound"],
}


@pytest.fixture(scope="module")
def pair() -> Pair:
    return tiny_pair()


@pytest.mark.parametrize("words", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("stage", [PREFILL, DECODE, SPECULATE], ids=lambda stage: str(stage.name))
def test_a_stage_does_only_what_mps_can(stage: Stage, words: list[str], pair: Pair, tmp_path: Path) -> None:
    config = configuration(tmp_path, PROMPTS, *words)
    unit = stage.units(config, render(Prompt("p", "own", PROMPTS["prompt-0"]), pair.tokenizer))[0]
    records, operations = under_mps_rules(lambda: stage.measure(pair, config, unit))
    assert records.keys()
    assert "embedding" in operations
    assert len(operations) > 20
    assert isinstance(unit, Unit)


def test_the_list_of_fallbacks_is_empty() -> None:
    assert FALLBACKS.is_file()
    assert allowed_fallbacks() == frozenset()


@pytest.mark.parametrize(
    "refused",
    [
        lambda: torch.ones(3).double(),
        lambda: torch.ones(3, dtype=torch.float64),
        lambda: torch.fft.fft(torch.ones(3)) * torch.tensor(1j, dtype=torch.complex128),
        lambda: torch.linalg.eigh(torch.eye(3)),
        lambda: torch.ones(3).cpu().double() + torch.ones(3),
    ],
)
def test_what_mps_cannot_do_is_refused(refused: Callable[[], object]) -> None:
    with pytest.raises(NotOnMpsError):
        under_mps_rules(refused)


@pytest.mark.parametrize(
    "allowed",
    [
        lambda: torch.ones(3).cpu().double().mean(),
        lambda: torch.ones(3).to("cpu").double().numpy(),
        lambda: torch.ones(3).cumsum(0),
        lambda: torch.ones(3, 3) @ torch.ones(3, 3),
    ],
)
def test_what_it_can_do_or_what_is_done_on_the_host_is_not(allowed: Callable[[], object]) -> None:
    under_mps_rules(allowed)


def test_the_table_is_read_as_it_is_meant() -> None:
    on_mps = operations_on_mps()
    assert len(on_mps) > 2000
    assert on_mps["mm"]  # a kernel of its own, by way of mm.out
    assert on_mps["reshape"]  # composed of others
    assert not on_mps["_linalg_eigh"]
    assert not on_mps["_scaled_dot_product_flash_attention_for_cpu"]
