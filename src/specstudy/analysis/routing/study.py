"""Everything about routing, from the tables of a run whose verifier has experts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.join import Tables, frame_of
from specstudy.analysis.routing.costs import costs_of
from specstudy.analysis.routing.measures import entropy_measures, layer_measures, outcome_measures
from specstudy.analysis.routing.sequences import Layers, answers, layers_of, passes, prompt_groups
from specstudy.analysis.routing.windows import WINDOWS, fit_windows, popularity, window_rows, windows_of
from specstudy.condition import Condition
from specstudy.records import RoutingCost, RoutingMeasure, RoutingWindow


@dataclass(frozen=True)
class RoutingAnalysis:
    """Rows of the tables `routing_windows`, `routing_measures`, `routing_costs`, and the model's layers."""

    layers: Layers
    routing_windows: list[RoutingWindow]
    routing_measures: list[RoutingMeasure]
    routing_costs: list[RoutingCost]

    def measure(self, name: str) -> RoutingMeasure:
        """A measure over all layers."""
        return next(row for row in self.routing_measures if row.measure == name and row.layer is None)

    def over_layers(self, source: str) -> list[RoutingWindow]:
        """Windows by length, mean over layers."""
        return [row for row in self.routing_windows if row.source == source and row.layer is None]

    def costs(self, batch: int) -> list[RoutingCost]:
        """Costs by gamma at one batch size."""
        return sorted((row for row in self.routing_costs if row.batch == batch), key=lambda row: row.gamma)


def analyze_routing(
    tables: Tables,
    prompts: pd.DataFrame,
    gammas: Iterable[Condition],
    primary: Condition | None,
    settings: AnalysisSettings,
) -> RoutingAnalysis | None:
    """None for a run without routing. `gammas`: the conditions whose cost is told; outcomes are told of `primary`."""
    if frame_of(tables, "routing_layers").empty:
        return None
    layers, groups = layers_of(tables), prompt_groups(tables)
    sequences = answers(tables, layers)
    popular = popularity(sequences)
    fits = {}
    rows: list[RoutingWindow] = []
    for width in WINDOWS:
        windows, _ = windows_of(sequences, width)
        fits[width] = fit_windows(windows) if len(windows) else None
        rows += window_rows("decode", width, sequences, popular, fits[width], layers, groups, settings)
    costs: list[RoutingCost] = []
    of_primary = []
    for condition in gammas:
        verified, width = passes(tables, layers, condition), condition.gamma + 1
        full = [s for s in verified if len(s.used) == width]
        rows += window_rows("verify", width, full, popular, None, layers, groups, settings)
        costs += costs_of(tables, condition, sequences, verified, fits.get(width), layers, settings)
        if condition == primary:
            of_primary = verified
    measures = [
        *layer_measures(tables, sequences, layers, settings),
        *outcome_measures(tables, of_primary, settings),
        *entropy_measures(tables, sequences, prompts, settings),
    ]
    return RoutingAnalysis(layers, rows, measures, costs)
