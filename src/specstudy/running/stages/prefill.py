"""Attention over the prompts: `prefill_tokens`, `prefill_heads`, `prefill_prompts`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specstudy.config import StudyConfig
from specstudy.running.stage import Records, Stage, Unit
from specstudy.tables.sinks import at_threshold

if TYPE_CHECKING:
    from specstudy.models.load import Pair


def _measure_prefill_unit(pair: Pair, config: StudyConfig, unit: Unit) -> Records:
    from specstudy.measure.sinks import measure_prefill

    return measure_prefill(pair.verifier, pair.tokenizer, unit.rendered, config.prefill.window)


PREFILL = Stage(
    name="prefill",
    # The same text over the same model has the same prefill: only versions that change the text are measured.
    units=lambda config, rendered: (
        [] if (version := rendered.prompt.version) and version.alters_the_models else [Unit(rendered)]
    ),
    settings=lambda config, unit: {"window": config.prefill.window},
    measure=_measure_prefill_unit,
    models=("verifier",),
    generates=False,
    finish=lambda config, tables: at_threshold(tables, config.prefill.threshold),
)
