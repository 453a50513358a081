"""Designs without weights: what is predicted, what is run, and what cannot be."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specstudy import routing_formulas as formulas
from specstudy.errors import UserError
from specstudy.measure import designs
from specstudy.measure.designs import Design, assignments, design_costs, dummy_experts
from specstudy.models.device import DeviceMemory
from specstudy.routing_formulas import ExpertLayerSize

CPU, DTYPE = torch.device("cpu"), torch.float32
SMALL = {"n_experts": 16, "n_chosen": 2, "gamma": 3, "hidden": 8, "expert_hidden": 16, "repeats": 1}


def test_parameters_of_a_layer() -> None:
    size = ExpertLayerSize(64, 256, n_experts=8, n_chosen=2, n_matrices=2, biases=True)
    assert size.total == 265_216
    assert size.active == 66_688
    design = Design(**SMALL)
    experts = sum(weight.numel() for weight in dummy_experts(design, CPU, DTYPE).parameters())
    assert design.size.total == experts + 8 * 16
    assert design.size.active == experts * 2 // 16 + 8 * 16


def test_tokens_keep_experts_of_the_token_before_as_often_as_they_are_told_to() -> None:
    """Kept with .5, or drawn again among 16 with 2 places: what is not kept comes back by chance."""
    rng = np.random.default_rng(0)
    chosen = assignments(16, 2, 0.0, 0.5, 20_000, rng)
    assert all(len(set(experts)) == 2 for experts in chosen.tolist())
    used = formulas.on_off(chosen, 16)
    # Both kept, one kept (the other drawn again from the fifteen left), none kept (both drawn anew).
    expected = 0.25 * 1 + 0.5 * (1 + 1 / 15) / 2 + 0.25 * 2 / 16
    assert formulas.overlap_with_previous(used).mean() == pytest.approx(expected, abs=0.01)
    assert used.mean(0) == pytest.approx(np.full(16, 2 / 16), abs=0.015)


def test_popularity_falls_as_the_skew_says() -> None:
    chosen = assignments(4, 1, 1.0, 0.0, 20_000, np.random.default_rng(0))
    shares = np.bincount(chosen[:, 0], minlength=4) / len(chosen)
    assert shares == pytest.approx(np.array([12, 6, 4, 3]) / 25, abs=0.015)


def test_costs_of_a_design() -> None:
    rows = list(design_costs(Design(**SMALL, overlap=0.6, skew=0.5), CPU, DTYPE))
    assert [row.gamma for row in rows] == [1, 2, 3]
    for row in rows:
        assert 2 < row.distinct < row.independent < row.uniform
        assert row.pairwise == pytest.approx(row.distinct, abs=0.1)
        assert row.by_bytes == pytest.approx(2 / row.distinct)
        assert row.by_bytes_at_random == pytest.approx(2 / row.uniform)
        assert row.by_clock > 0
        assert row.by_clock_at_random > 0


def test_all_experts_for_every_token_cost_no_more_bytes() -> None:
    (row,) = design_costs(Design(**{**SMALL, "n_chosen": 16, "gamma": 1}), CPU, DTYPE)
    assert row.distinct == row.uniform == row.independent == 16
    assert row.pairwise == pytest.approx(16)
    assert row.by_bytes == 1


def test_passes_run_the_windows_of_their_routing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every timed pass takes consecutive tokens of one of the two routings, and one token takes turns with many."""
    routed = np.arange(40).reshape(20, 2) % 16
    uniform = (np.arange(40).reshape(20, 2) + 5) % 16
    passes: list[np.ndarray] = []
    layer = dummy_experts(Design(**SMALL), CPU, DTYPE)
    layer.register_forward_pre_hook(lambda module, arguments: passes.append(arguments[1].numpy()))
    designs.timed(layer, [routed, uniform], 3, Design(**SMALL), np.random.default_rng(0))
    assert [len(ids) for ids in passes] == [1, 3, 1, 3] * 2
    for number, ids in enumerate(passes):
        windows = np.lib.stride_tricks.sliding_window_view((routed, uniform)[number // 2 % 2], len(ids), axis=0)
        assert any(np.array_equal(ids.T, window) for window in windows)


def test_both_kinds_of_routing_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[np.ndarray]] = []

    def timed(layer: object, routings: list[np.ndarray], *_: object) -> list[float]:
        seen.append(routings)
        return [0.75, 0.5]

    monkeypatch.setattr(designs, "timed", timed)
    rows = list(design_costs(Design(**SMALL, overlap=0.8), CPU, DTYPE))
    assert {(row.by_clock, row.by_clock_at_random) for row in rows} == {(0.75, 0.5)}
    for routings in seen:
        routed, uniform = (formulas.overlap_with_previous(formulas.on_off(ids, 16)).mean() for ids in routings)
        assert routed > 0.75
        assert uniform < 0.2


def test_what_cannot_run_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="n_chosen must be at most n_experts=4; got 5"):
        Design(n_experts=4, n_chosen=5)
    with pytest.raises(UserError, match="multiple of 8 from 8 to 65536; got 12"):
        Design(hidden=12)
    monkeypatch.setattr("specstudy.models.device.device_memory", lambda device: DeviceMemory(2**30, 2**28))
    with pytest.raises(UserError, match=r"0.6 GiB has no room in the 0.2 GiB"):
        next(design_costs(Design(n_experts=100), CPU, DTYPE))
