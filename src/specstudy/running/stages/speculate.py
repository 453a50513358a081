"""Speculative decoding beside the verifier alone: `spec_tokens`, `spec_rounds`, `spec_runs`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from specstudy.condition import Condition
from specstudy.config import StudyConfig
from specstudy.running.stage import Records, Stage, Unit

if TYPE_CHECKING:
    from specstudy.measure.speculation_records import SpeculationSettings
    from specstudy.models.load import Pair
    from specstudy.prompts.prompt import RenderedPrompt


def speculation_settings(pair: Pair, config: StudyConfig, condition: Condition) -> SpeculationSettings:
    """How one condition of the configuration is speculated with."""
    from specstudy.measure.decode import GenerationSettings
    from specstudy.measure.sampling import Warp
    from specstudy.measure.speculation_records import SpeculationSettings

    return SpeculationSettings(
        generation=GenerationSettings(
            warp=Warp(condition.temperature, condition.top_p),
            max_new_tokens=config.decode.max_new_tokens,
            eos_ids=pair.eos_ids,
            n_candidates=config.decode.recorded_candidates,
        ),
        gamma=condition.gamma,
        proposer=condition.proposer,
        stop=condition.stop,
        stop_threshold=condition.stop_threshold,
        exit_layers=config.spec.exit_layers,
        lookup_tokens=config.spec.lookup_tokens,
        baseline=config.spec.baseline,
    )


def _measure_speculation_unit(pair: Pair, config: StudyConfig, unit: Unit) -> Records:
    from specstudy.measure.altered import altered, generation_settings
    from specstudy.measure.speculation_records import measure_speculation
    from specstudy.seeds import uniforms

    assert unit.condition is not None
    assert unit.repetition is not None
    settings, seed_id = speculation_settings(pair, config, unit.condition), unit.prompt.seed_id
    settings = replace(settings, generation=generation_settings(settings.generation, unit.prompt))
    with altered(pair, unit.rendered, config.seed):
        return measure_speculation(
            pair,
            unit.rendered,
            settings,
            unit.repetition,
            # Proposer, stop rule and sampling are no part of the seed: conditions are compared on the same numbers.
            rng=uniforms(config.seed, "speculate", seed_id, unit.condition.gamma, unit.repetition),
            # The verifier alone repeats the decode stage's answer, so that both stages time the same text.
            baseline_rng=uniforms(config.seed, "decode", seed_id, unit.repetition),
        )


CHECKED_PROMPTS = 2


def _check_speculation(pair: Pair, config: StudyConfig, rendered: Sequence[RenderedPrompt]) -> dict[str, Any]:
    """The engine's self-check at every condition, on the shortest prompts of different categories and as far as
    the longest text goes; then for each way in which versions of prompts alter the models."""
    from specstudy.measure.checked_texts import far_prompts
    from specstudy.measure.self_check import run_self_check
    from specstudy.seeds import uniforms

    by_length = sorted(rendered, key=lambda p: (len(p.positions), p.prompt.prompt_id))
    shortest: dict[str, RenderedPrompt] = {}
    for prompt in by_length:
        shortest.setdefault(prompt.prompt.category, prompt)
    near = [prompt.token_ids for prompt in list(shortest.values())[:CHECKED_PROMPTS]]
    far = far_prompts(pair, [prompt.token_ids for prompt in rendered], config.decode.max_new_tokens)
    report = run_self_check(
        pair,
        [*near, *(prompt for prompt in far if prompt not in near)],
        [speculation_settings(pair, config, condition) for condition in config.spec.conditions],
        lambda index: uniforms(config.seed, "self-check", index),
    ).report()
    altered = _check_altered(pair, config, by_length)
    return {**report, **altered, "passed": all(c["passed"] for c in (report, *altered.values()))}


def _check_altered(pair: Pair, config: StudyConfig, rendered: Sequence[RenderedPrompt]) -> dict[str, dict[str, Any]]:
    """The self-check of the models as each kind of version alters them, each on the first prompt that has content."""
    from specstudy.measure.altered import altered, generation_settings
    from specstudy.measure.self_check import run_self_check
    from specstudy.seeds import uniforms

    found: dict[str, dict[str, Any]] = {}
    for prompt in rendered:
        version = prompt.prompt.version
        has_content = not all(position.is_structural for position in prompt.positions)
        if version is None or not version.alters_the_models or version.name in found or not has_content:
            continue
        how = speculation_settings(pair, config, config.spec.primary)
        how = replace(how, generation=generation_settings(how.generation, prompt.prompt))
        with altered(pair, prompt, config.seed):
            outcome = run_self_check(
                pair, [prompt.token_ids], [how], lambda index: uniforms(config.seed, "self-check", index)
            )
        found[version.name] = outcome.summary()
    return found


def _settings_in_key(config: StudyConfig, unit: Unit) -> dict[str, object]:
    assert unit.condition is not None
    proposer = unit.condition.proposer
    return {
        **asdict(unit.condition),  # a temperature of the prompt's version is part of the prompt
        "exit_layers": config.spec.exit_layers if proposer == "early_exit" else None,
        "lookup_tokens": config.spec.lookup_tokens if proposer == "prompt_lookup" else None,
        "baseline": config.spec.baseline,
        "max_new_tokens": config.decode.max_new_tokens,
        "recorded_candidates": config.decode.recorded_candidates,
    }


SPECULATE = Stage(
    name="speculate",
    units=lambda config, rendered: [
        Unit(rendered, condition, repetition)
        for condition in config.spec.conditions
        for repetition in range(config.spec.repetitions)
    ],
    settings=_settings_in_key,
    measure=_measure_speculation_unit,
    check=_check_speculation,
)
