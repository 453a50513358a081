"""The study of a verifier with experts, and which of them each token used: `routing_tokens`, `routing_layers`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import entry
from analyze import answer
from decode import DECODE, decode_settings
from prefill import PREFILL
from speculate import SPECULATE, speculation_settings
from stages import Records, Stage, Unit
from workflow import run

from specstudy.config import StudyConfig

if TYPE_CHECKING:
    from specstudy.models.load import Pair


def _measure(pair: Pair, config: StudyConfig, unit: Unit) -> Records:
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
    measure=_measure,
)


def routing(config: StudyConfig) -> int:
    """The study with this stage, for a verifier that has experts. Raises UserError, before any work, for another."""
    from specstudy.models.routers import router_kind
    from specstudy.models.sources import find_source

    models = config.models
    source = find_source(models.verifier, "models.verifier", models.trust_remote_code)
    router_kind(source.config(), models.verifier)
    return run(config, [PREFILL, DECODE, SPECULATE, ROUTING], after=answer)


if __name__ == "__main__":
    entry.main(routing)
