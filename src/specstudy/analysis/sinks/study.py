"""The whole analysis of sinks and context health: tables in, answers out."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.join import Tables
from specstudy.analysis.sinks import (
    boundary,
    companions,
    first_token,
    heads,
    health,
    length,
    prediction,
    roles,
    thresholds,
    tokens,
)
from specstudy.analysis.sinks.positions import position_frame
from specstudy.records import (
    ContextCorrelation,
    ContextDistribution,
    HealthThreshold,
    SinkAnswer,
    SinkPrediction,
    SinkRecurrence,
    SinkRole,
    SinkThreshold,
    SinkToken,
)


@dataclass(frozen=True)
class SinkAnalysis:
    """What was found. The lists are rows of the tables of the same names; the frames are for figures.

    `positions`: every prompt position (`position_frame`). `within_prompts`: a coefficient a prompt
    (`prediction_frame`). `head_map`: layers x heads. `soft_by_length`: the soft score of each prompt,
    and what it would be from where its positions lie. `boundary_gain`, `first_token`: a row a prompt (the
    functions of these names).
    """

    sink_roles: list[SinkRole]
    sink_predictions: list[SinkPrediction]
    sink_tokens: list[SinkToken]
    sink_recurrence: list[SinkRecurrence]
    sink_thresholds: list[SinkThreshold]
    health_thresholds: list[HealthThreshold]
    context_distributions: list[ContextDistribution]
    context_correlations: list[ContextCorrelation]
    sink_answers: list[SinkAnswer]
    positions: pd.DataFrame
    within_prompts: pd.DataFrame
    head_map: pd.DataFrame
    soft_by_length: pd.DataFrame
    boundary_gain: pd.DataFrame
    first_token: pd.DataFrame

    def answer(self, quantity: str, measure: str) -> SinkAnswer:
        """The answer with these keys; raises StopIteration if there is none."""
        return next(a for a in self.sink_answers if (a.quantity, a.measure) == (quantity, measure))


def analyze_sinks(tables: Tables, prompts: pd.DataFrame, settings: AnalysisSettings) -> SinkAnalysis:
    """Everything about sinks and context health, from a study's tables (any may be missing) and its prompt frame."""
    positions = position_frame(tables)
    within_prompts = prediction.prediction_frame(positions)
    scored = length.scored_attention(positions)
    drawn = length.simulated_scores(scored, settings)
    soft_by_length = length.soft_scores(scored, drawn, settings)
    gain, at_first = boundary.boundary_gain(positions), first_token.first_token_frame(positions)
    return SinkAnalysis(
        sink_roles=roles.sinks_by_role(positions, settings),
        sink_predictions=prediction.predictions(within_prompts, settings),
        sink_tokens=tokens.sink_tokens(positions, settings),
        sink_recurrence=tokens.sink_recurrence(positions, settings),
        sink_thresholds=thresholds.threshold_sweep(positions, settings),
        health_thresholds=health.health_sweep(positions, settings),
        context_distributions=companions.distributions(prompts),
        context_correlations=companions.context_correlations(prompts, settings),
        sink_answers=[
            *thresholds.recommended_thresholds(positions, settings),
            *heads.sink_rate_agreement(positions, prompts, settings),
            *length.length_answers(soft_by_length, drawn, settings),
            *boundary.boundary_answers(gain, tables, settings),
            *first_token.slope_answers(at_first, tables, settings),
        ],
        positions=positions,
        within_prompts=within_prompts,
        head_map=heads.head_map(tables),
        soft_by_length=soft_by_length,
        boundary_gain=gain,
        first_token=at_first,
    )
