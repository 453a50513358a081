"""What dropping keys of the prompt from a cache costs: `retention_runs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specstudy.config import StudyConfig
from specstudy.running.stage import Records, Stage, Unit
from specstudy.running.stages.decode import DECODE, decode_settings

if TYPE_CHECKING:
    from specstudy.models.load import Pair


def _measure_retention_unit(pair: Pair, config: StudyConfig, unit: Unit) -> Records:
    from specstudy.measure.retention import measure_retention
    from specstudy.seeds import uniforms

    assert config.retention.budgets is not None
    seed_id = unit.prompt.seed_id
    # Those of the decode stage, and as many, so that these are its answers.
    rngs = [uniforms(config.seed, "decode", seed_id, r) for r in range(config.decode.repetitions)]
    drawing = uniforms(config.seed, "retention", seed_id)
    return measure_retention(
        pair, unit.rendered, decode_settings(pair, config), config.retention.budgets, rngs, drawing
    )


def _refuse(pair: Pair) -> None:
    from specstudy.models.without_position import refuse_unless_maskable

    for model in (pair.verifier, pair.draft):
        refuse_unless_maskable(model.module)


RETENTION = Stage(
    name="retention",
    # Versions that hide keys or impose temperatures ask another question of the models.
    units=lambda config, rendered: (
        [] if (version := rendered.prompt.version) and version.alters_the_models else [Unit(rendered)]
    ),
    settings=lambda config, unit: {**DECODE.settings(config, unit), "budgets": config.retention.budgets},
    measure=_measure_retention_unit,
    refuse=_refuse,
)
