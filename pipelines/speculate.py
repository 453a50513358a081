"""Speculative decoding beside the verifier alone: `spec_tokens`, `spec_rounds`, `spec_runs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import entry
from workflow import Records, Stage, Unit, run

from specstudy.config import StudyConfig

if TYPE_CHECKING:
    from specstudy.models.load import Pair


def _measure(pair: Pair, config: StudyConfig, unit: Unit) -> Records:
    from specstudy.measure.decode import GenerationSettings
    from specstudy.measure.sampling import Warp
    from specstudy.measure.speculation_records import SpeculationSettings, measure_speculation
    from specstudy.seeds import uniforms

    assert unit.gamma is not None
    assert unit.repetition is not None
    spec = config.spec
    settings = SpeculationSettings(
        generation=GenerationSettings(
            warp=Warp(spec.temperature, spec.top_p),
            max_new_tokens=config.decode.max_new_tokens,
            eos_ids=pair.eos_ids,
            n_candidates=config.decode.recorded_candidates,
        ),
        gamma=unit.gamma,
        proposer=spec.proposer,
        stop=spec.stop,
        stop_threshold=spec.stop_threshold,
        exit_layers=spec.exit_layers,
        lookup_tokens=spec.lookup_tokens,
    )
    prompt_id = unit.prompt.prompt_id
    return measure_speculation(
        pair,
        unit.rendered,
        settings,
        unit.repetition,
        rng=uniforms(config.seed, "speculate", prompt_id, unit.gamma, unit.repetition),
        # The verifier alone repeats the decode stage's answer, so that both stages time the same text.
        baseline_rng=uniforms(config.seed, "decode", prompt_id, unit.repetition),
    )


SPECULATE = Stage(
    name="speculate",
    units=lambda config, rendered: [
        Unit(rendered, gamma, repetition)
        for gamma in config.spec.gamma
        for repetition in range(config.spec.repetitions)
    ],
    settings=lambda config: {
        "temperature": config.spec.temperature,
        "top_p": config.spec.top_p,
        "proposer": config.spec.proposer,
        "exit_layers": config.spec.exit_layers if config.spec.proposer == "early_exit" else None,
        "lookup_tokens": config.spec.lookup_tokens if config.spec.proposer == "prompt_lookup" else None,
        "stop": config.spec.stop,
        "stop_threshold": config.spec.stop_threshold if config.spec.stop != "none" else None,
        "max_new_tokens": config.decode.max_new_tokens,
        "recorded_candidates": config.decode.recorded_candidates,
    },
    measure=_measure,
    source_files=("models", "measure", "formulas.py", "prompts", "records.py", "seeds.py"),
)


def speculate(config: StudyConfig) -> int:
    """Run this stage alone."""
    return run(config, [SPECULATE])


if __name__ == "__main__":
    entry.main(speculate)
