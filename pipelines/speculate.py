"""Speculative decoding beside the verifier alone: `spec_tokens`, `spec_rounds`, `spec_runs`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import entry
from workflow import Records, Stage, Unit, run

from specstudy.config import StudyConfig

if TYPE_CHECKING:
    from specstudy.models.load import Pair
    from specstudy.prompts import RenderedPrompt


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


CHECKED_PROMPTS = 3


def _check(pair: Pair, config: StudyConfig, rendered: Sequence[RenderedPrompt]) -> dict[str, Any]:
    """The engine's self-check, on the shortest prompts of different categories."""
    from specstudy.measure.sampling import Warp
    from specstudy.measure.self_check import run_self_check
    from specstudy.seeds import uniforms

    shortest: dict[str, RenderedPrompt] = {}
    for prompt in sorted(rendered, key=lambda p: (len(p.positions), p.prompt.prompt_id)):
        shortest.setdefault(prompt.prompt.category, prompt)
    chosen = list(shortest.values())[:CHECKED_PROMPTS]
    outcome = run_self_check(
        pair,
        [prompt.token_ids for prompt in chosen],
        Warp(config.spec.temperature, config.spec.top_p),
        max(config.spec.gamma),
        lambda index: uniforms(config.seed, "self-check", index),
    )
    return {"passed": outcome.passed, **asdict(outcome)}


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
    check=_check,
)


def speculate(config: StudyConfig) -> int:
    """Run this stage alone."""
    return run(config, [SPECULATE])


if __name__ == "__main__":
    entry.main(speculate)
