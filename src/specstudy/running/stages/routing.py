"""Which experts of the verifier each token used: `routing_tokens`, `routing_layers`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from specstudy.config import StudyConfig
from specstudy.running.stage import Records, Stage, Unit
from specstudy.running.stages.decode import DECODE, decode_settings
from specstudy.running.stages.speculate import SPECULATE, speculation_settings

if TYPE_CHECKING:
    from specstudy.models.load import Pair


def _measure_routing_unit(pair: Pair, config: StudyConfig, unit: Unit) -> Records:
    from specstudy.measure.altered import altered, generation_settings
    from specstudy.measure.routing import measure_decode_routing, measure_round_routing
    from specstudy.seeds import uniforms

    seed_id, repetition = unit.prompt.seed_id, unit.repetition or 0
    with altered(pair, unit.rendered, config.seed):
        # The random numbers of the other stages, so that these are the texts that those have measured.
        if unit.condition is None:
            settings = generation_settings(decode_settings(pair, config), unit.prompt)
            rng = uniforms(config.seed, "decode", seed_id, repetition)
            return measure_decode_routing(pair, unit.rendered, settings, repetition, rng)
        speculation = speculation_settings(pair, config, unit.condition)
        speculation = replace(speculation, generation=generation_settings(speculation.generation, unit.prompt))
        rng = uniforms(config.seed, "speculate", seed_id, unit.condition.gamma, repetition)
        return measure_round_routing(pair, unit.rendered, speculation, repetition, rng)


ROUTING = Stage(
    name="routing",
    units=lambda config, rendered: [*DECODE.units(config, rendered), *SPECULATE.units(config, rendered)],
    settings=lambda config, unit: (SPECULATE if unit.condition else DECODE).settings(config, unit),
    measure=_measure_routing_unit,
)
