"""Every stage does only what Apple's MPS can do, and waits for it only where it is meant to, seen without a Mac."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
import torch
from host_synchronisations import synchronising_places
from mps_rules import FALLBACKS, NotOnMpsError, allowed_fallbacks, operations_on_mps, under_mps_rules
from tiny_study import PROMPTS, configuration, tiny_pair

from specstudy.measure import sampling
from specstudy.models.early_exit import first_layers
from specstudy.models.load import Pair
from specstudy.prompts import Prompt, render
from specstudy.running.stage import Stage
from specstudy.running.stages.decode import DECODE
from specstudy.running.stages.prefill import PREFILL
from specstudy.running.stages.routing import ROUTING
from specstudy.running.stages.speculate import SPECULATE

SETTINGS = {
    "sampling": [],
    "greedy": ["decode.temperature=0"],
    "whole distribution": ["decode.top_p=1", "decode.temperature=1"],
    "prompt look-up": ["spec.proposer=prompt_lookup"],
    "early exit": ["spec.proposer=early_exit", "spec.exit_layers=1"],
    "stop by entropy": ["spec.stop=entropy"],
    "stop by bound": ["spec.stop=bound"],
}

# Once a pass; in `prefill_sums` it is the library, which looks for texts packed into one where nothing is cached.
ATTENTION = {"attention_sums.SumsOfLayers.finish", "sinks.prefill_sums"}
PREFILL_WAITS = {*ATTENTION, "sinks.negative_log2_likelihoods"}  # once a block of tokens
# Twice a layer, once an answer: its queries stand behind cached keys, so that a mask says what they see.
MASK = {"attention._visible", "attention._AttentionFunction._reduce"}
GENERATE_WAITS = {"transfer.rows_to_host"}  # once a token or round
FORCED = {"teacher_forced.teacher_forced", "teacher_forced.complete_warp"}  # once a block
OF_ANSWER = {*ATTENTION, *MASK, "attention_steps.finished"}  # its attention, once an answer
DECODE_WAITS = {*GENERATE_WAITS, *OF_ANSWER, *FORCED}
SPECULATE_WAITS = {*GENERATE_WAITS, *OF_ANSWER}
ALSO = {
    "prompt look-up": {"prompt_lookup.PromptLookup.propose"},  # once a round
    "stop by entropy": {"proposers.ModelProposer.propose"},  # once a drafted token after the first
    "stop by bound": {"proposers.ModelProposer.propose"},
}
WAITS = {"prefill": PREFILL_WAITS, "decode": DECODE_WAITS, "speculate": SPECULATE_WAITS}


@pytest.fixture(scope="module")
def pair() -> Pair:
    return tiny_pair()


def measured(stage: Stage, name: str, pair: Pair, output_dir: Path) -> tuple[set[str], set[str]]:
    """Operations that a stage used under the rules at one of SETTINGS, and where it waited for the device."""
    config = configuration(output_dir, PROMPTS, *SETTINGS[name])
    units = stage.units(config, render(Prompt("p", "own", PROMPTS["prompt-0"]), pair.tokenizer))

    def measure() -> set[str]:
        with synchronising_places() as places:
            for unit in units:
                assert stage.measure(pair, config, unit).keys()
        return set(places)

    places, operations = under_mps_rules(measure)
    return operations, places


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("stage", [PREFILL, DECODE, SPECULATE], ids=lambda stage: str(stage.name))
def test_a_stage_does_only_what_mps_can_and_waits_only_where_it_must(
    stage: Stage, name: str, pair: Pair, tmp_path: Path
) -> None:
    first_layers(pair.verifier, 1)  # sizes are counted on the CPU, once
    operations, places = measured(stage, name, pair, tmp_path)
    assert "embedding" in operations
    assert len(operations) > 20
    assert places <= WAITS[stage.name] | ALSO.get(name, set())
    assert places & WAITS[stage.name]


def test_routing_does_only_what_mps_can_and_waits_only_where_it_must(pair: Pair, tmp_path: Path) -> None:
    config = tiny.configurations()["experts"]
    config.vocab_size = pair.verifier.vocabulary
    mixture = replace(pair, verifier=tiny.language_model(config, 0, config.vocab_size))
    operations, places = measured(ROUTING, "sampling", mixture, tmp_path)
    assert len(operations) > 20
    assert places == {*GENERATE_WAITS, "routers.RouterWatch.take"}  # once a generation, or a round


@pytest.mark.parametrize("stage", [DECODE, SPECULATE], ids=lambda stage: str(stage.name))
def test_a_wait_that_is_not_meant_is_seen(
    stage: Stage, pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sampling.RawStatistics.__init__

    def reading(self: sampling.RawStatistics, *values: torch.Tensor) -> None:
        real(self, *values)
        self.entropy_bits.sum().item()

    monkeypatch.setattr(sampling.RawStatistics, "__init__", reading)
    _, places = measured(stage, "sampling", pair, tmp_path)
    assert places - WAITS[stage.name] == {"sampling.raw_statistics"}


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
@pytest.mark.parametrize("inference", [False, True])
def test_what_mps_cannot_do_is_refused(inference: bool, refused: Callable[[], object]) -> None:
    with pytest.raises(NotOnMpsError), torch.inference_mode(inference):
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
