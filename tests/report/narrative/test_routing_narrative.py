"""The sentence about a mixture of experts says what its rows hold, and nothing that they do not."""

from __future__ import annotations

from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from specstudy.analysis.routing.sequences import Layers
from specstudy.analysis.routing.study import RoutingAnalysis
from specstudy.condition import STUDY_CONDITION
from specstudy.records import RoutingCost, RoutingWindow
from specstudy.report.narrative.routing import experts_sentence

NOTHING: dict[str, Any] = dict.fromkeys(("ci_low", "ci_high", "null_reason", "layer", "pairwise_null_reason"))
LAYERS = Layers([0, 1], 8, 2, np.array([10.0, 10.0]), 100.0)


def window(source: str, width: int, pairwise: float | None) -> RoutingWindow:
    held = {"window": width, "n_prompts": 5, "n_windows": 50, "estimate": 4.0}
    return RoutingWindow(**{**NOTHING, **held}, source=source, uniform=6.1, independent=5.25, pairwise=pairwise)


def cost(gamma: int, clock: float | None) -> RoutingCost:
    condition = asdict(replace(STUDY_CONDITION, gamma=gamma))
    by_bytes = {"by_bytes": 0.8125, "by_bytes_uniform": 0.7, "by_bytes_independent": 0.75, "by_bytes_pairwise": None}
    nothing = ("ci_low", "ci_high", "by_bytes_ci_low", "by_bytes_ci_high", "null_reason")
    speeds = dict.fromkeys(("speedup", "speedup_by_bytes", "speedup_by_clock", *nothing))
    experts = {"distinct_one": 2.0, "distinct_pass": 4.5}
    return RoutingCost(**condition, batch=1, n=5, **experts, **by_bytes, **speeds, estimate=clock)


def sentence(windows: list[RoutingWindow], costs: list[RoutingCost]) -> str:
    result: Any = SimpleNamespace(routing=RoutingAnalysis(LAYERS, windows, [], costs), primary=STUDY_CONDITION)
    return experts_sentence(result)


def test_a_pass_at_the_primary_gamma_against_its_baselines() -> None:
    windows = [window(source, width, 4.75) for width in (3, 5) for source in ("decode", "verify")]
    said = sentence(windows, [cost(2, 0.9), cost(4, 0.625)])
    for part in (
        *("gamma 4 ", "uses 4.50 of a layer's 8 experts", "single token 2.00", "6.10 if they chose uniformly"),
        *("5.25 if they chose independently", "4.75 if they chose in pairs", "by bytes is 0.81", "by the clock 0.62."),
    ):
        assert part in said


def test_what_is_not_known_is_not_said() -> None:
    said = sentence([window("verify", 3, None)], [cost(2, None)])
    assert said.startswith("At gamma 2 ")
    assert "in pairs" not in said
    assert said.endswith("by bytes is 0.81.")
    assert sentence([], []) == ""
    assert experts_sentence(SimpleNamespace(routing=None)) == ""
