"""How often the loops wait for the device: once a token or a round, and once a drafted token if a rule may stop it."""

from collections import Counter

import numpy as np
import pytest
import tiny
import torch
from host_synchronisations import host_synchronisations

from specstudy.measure.decode import GenerationSettings, generate
from specstudy.measure.proposers import ModelProposer, bound_stop, entropy_stop
from specstudy.measure.sampling import Warp
from specstudy.measure.speculative import SpeculativeLoop

PROMPT = [3, 5, 7, 11, 2, 40]
WARPS = [Warp(0.0, 1.0), Warp(0.7, 0.9), Warp(1.0, 1.0)]
# Experts wait on their own account: which of them a token goes to decides the shapes.
CONFIGURATIONS = {name: c for name, c in tiny.configurations().items() if "experts" not in name}

READS = {
    "tolist": lambda t: t.tolist(),
    "numpy": lambda t: t.numpy(),
    "cpu": lambda t: t.cpu(),
    "to": lambda t: t.to("cpu"),
    "to, by keyword": lambda t: t.to(device="cpu"),
    "item": lambda t: t[0].item(),
    "bool": lambda t: bool(t[0]),
    "if": lambda t: 1 if t[0] else 2,
    "float": lambda t: float(t[0]),
    "int": lambda t: int(t[0]),
    "index": lambda t: [1, 2, 3][t.long()[0]],
    "array": lambda t: np.asarray(t),
    "nonzero": lambda t: t.nonzero(),
    "where": lambda t: torch.where(t > 0),
    "mask": lambda t: t[t > 0],
    "masked select": lambda t: torch.masked_select(t, t > 0),
    "unique": lambda t: torch.unique(t),
    "equal": lambda t: torch.equal(t, t),
}
NO_READS = {
    "arithmetic": lambda t: (t + 1).cumsum(0).sort(),
    "precision": lambda t: t.to(torch.float16),
    "its own device": lambda t: t.to(t.device),
    "slice": lambda t: t[1:],
    "rows": lambda t: list(t),
    "gather": lambda t: t[torch.tensor([0, 1])],
    "shape": lambda t: t.shape[0] + len(t),
}


@pytest.mark.parametrize("kind", READS)
def test_each_way_to_read_a_value_is_seen_once(kind):
    values = torch.tensor([1.0, 0.0, 2.0])
    with host_synchronisations() as counts:
        READS[kind](values)
    assert counts.total() == 1


@pytest.mark.parametrize("kind", NO_READS)
def test_what_stays_on_the_device_is_not_counted(kind):
    values = torch.tensor([1.0, 0.0, 2.0])
    with host_synchronisations() as counts:
        NO_READS[kind](values)
    assert counts == Counter()


def loop_for(name, warp, stop=None, gamma=4, n=60):
    verifier, draft = (tiny.language_model(CONFIGURATIONS[name], seed=seed) for seed in (1, 2))
    settings = GenerationSettings(warp, n, (), 3)
    loop = SpeculativeLoop(verifier, ModelProposer(draft, stop), PROMPT, settings, gamma, np.random.default_rng(0))
    loop.prefill()
    return loop


@pytest.mark.parametrize("warp", WARPS, ids=str)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_round_waits_once_for_its_result(name, warp):
    loop = loop_for(name, warp)
    for index in range(4):
        with host_synchronisations() as counts:
            loop.round(index, 4)
        assert counts == {"tolist": 1}


@pytest.mark.parametrize("stop", [entropy_stop(0.9, tiny.VOCABULARY), bound_stop(0.05)], ids=["entropy", "bound"])
def test_a_stop_rule_waits_once_for_each_drafted_token_after_the_first(stop):
    loop = loop_for("llama", Warp(0.7, 0.9), stop)
    for index in range(6):
        with host_synchronisations() as counts:
            result = loop.round(index, 4)
        n_asked = result.n_proposed - 1 + result.stopped_early
        assert counts.total() == n_asked + 1


@pytest.mark.parametrize("warp", WARPS, ids=str)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_verifier_alone_waits_once_a_token(name, warp):
    model = tiny.language_model(CONFIGURATIONS[name], seed=1)

    def counted(n):
        with host_synchronisations() as counts:
            generate(model, PROMPT, GenerationSettings(warp, n, (), 3), np.random.default_rng(0))
        return counts.total()

    assert counted(12) - counted(2) == 10
