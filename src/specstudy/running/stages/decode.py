"""The verifier's own answers: `decode_tokens`, `decode_runs`, `decode_attention`, attention by step and head, and
`lowered_keys`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specstudy.config import StudyConfig
from specstudy.running.stage import Records, Stage, Unit

if TYPE_CHECKING:
    from specstudy.measure.decode import GenerationSettings
    from specstudy.models.load import Pair


def decode_settings(pair: Pair, config: StudyConfig) -> GenerationSettings:
    """How the verifier's own answers are generated."""
    from specstudy.measure.decode import GenerationSettings
    from specstudy.measure.sampling import Warp

    return GenerationSettings(
        warp=Warp(config.decode.temperature, config.decode.top_p),
        max_new_tokens=config.decode.max_new_tokens,
        eos_ids=pair.eos_ids,
        n_candidates=config.decode.recorded_candidates,
    )


def _measure_decode_unit(pair: Pair, config: StudyConfig, unit: Unit) -> Records:
    from specstudy.measure.altered import altered, generation_settings
    from specstudy.measure.decode import measure_decode
    from specstudy.measure.lowered import measure_lowered
    from specstudy.seeds import uniforms

    rngs = [uniforms(config.seed, "decode", unit.prompt.seed_id, r) for r in range(config.decode.repetitions)]
    with altered(pair, unit.rendered, config.seed):
        settings = generation_settings(decode_settings(pair, config), unit.prompt)
        records = measure_decode(pair, unit.rendered, settings, rngs, config.decode.attention_heads)
    lowered = measure_lowered(pair, unit.rendered, records["decode_tokens"], config.seed)
    return {**records, "lowered_keys": lowered}


DECODE = Stage(
    name="decode",
    units=lambda config, rendered: [Unit(rendered)],
    settings=lambda config, unit: {
        "temperature": config.decode.temperature,
        "top_p": config.decode.top_p,
        "max_new_tokens": config.decode.max_new_tokens,
        "recorded_candidates": config.decode.recorded_candidates,
        "attention_heads": config.decode.attention_heads,
        "repetitions": config.decode.repetitions,  # answers of one prompt are one batch
    },
    measure=_measure_decode_unit,
)
