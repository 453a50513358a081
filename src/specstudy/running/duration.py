"""About how long measuring will take, said before it begins, from a few timed steps of the pair. No result depends on
it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specstudy.clock import load_average
from specstudy.config import StudyConfig
from specstudy.prompts import RenderedPrompt
from specstudy.running.stage import Stage, Unit, shared_parts
from specstudy.running.tasks import is_of_the_prompt, tasks_of
from specstudy.tables.store import Store

if TYPE_CHECKING:
    from specstudy.models.load import Pair

# What a unit takes beside the steps of its generations (prompts, attention, records), as smoke studies of the embedded
# pair took on a CPU: a step a prompt token at prefill, and factors on the steps of answers and of speculation.
PREFILL_STEPS_A_TOKEN = 0.16
DECODE_FACTOR, SPECULATE_FACTOR = 1.7, 1.25
TOKENS_A_ROUND = 1.8
LEAST_SAID_S = 30.0


@dataclass(frozen=True)
class Pace:
    """Seconds that a step over one token takes now, with the threads that torch has now."""

    verifier_step_s: float
    draft_step_s: float


def timed_pace(pair: Pair) -> Pace:
    """The pace of the pair, from six steps of each model."""
    import torch

    from specstudy.measure.thread_trial import try_threads

    n_threads = torch.get_num_threads()
    found = try_threads(pair, (n_threads,), trial_s=0)
    return Pace(found.verifier[n_threads], found.draft[n_threads])


def unit_seconds(stage: str, unit: Unit, config: StudyConfig, pace: Pace) -> float:
    """Seconds that a unit takes at this pace, if its texts run to their full length."""
    if stage == "prefill":
        return PREFILL_STEPS_A_TOKEN * len(unit.rendered.positions) * pace.verifier_step_s
    if unit.condition is None:
        return DECODE_FACTOR * config.decode.max_new_tokens * (pace.verifier_step_s + pace.draft_step_s)
    round_s = pace.verifier_step_s + unit.condition.gamma * pace.draft_step_s
    alone_s = pace.verifier_step_s if config.spec.baseline else 0.0
    return SPECULATE_FACTOR * config.decode.max_new_tokens * (alone_s + round_s / TOKENS_A_ROUND)


def seconds_of(units: Iterable[tuple[str, Unit]], config: StudyConfig, pace: Pace) -> float:
    """Seconds that the units of stages take together."""
    workers = config.execution.workers if config.execution.strategy == "ray" else 1
    return sum(unit_seconds(stage, unit, config, pace) for stage, unit in units) / workers


def duration_words(seconds: float, pace: Pace) -> str:
    """About how long it will take, in words, and from which pace that follows."""
    steps = f"{1000 * pace.verifier_step_s:.0f} ms a step of the verifier, {1000 * pace.draft_step_s:.0f} of the draft"
    load = load_average()
    return f"measuring takes about {_rounded(seconds)} ({steps} now{'' if load is None else f', at load {load:.1f}'})"


def _rounded(seconds: float) -> str:
    """A duration with as many digits as an estimate has."""
    if seconds < 90:
        return f"{max(10, round(seconds, -1)):.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"


def announce(
    stages: Sequence[Stage], config: StudyConfig, pair: Pair, prompts: Sequence[RenderedPrompt], store: Store
) -> None:
    """Say on stderr how long what is not there yet will take, if that is worth waiting for elsewhere."""
    missing = [
        (stage.name, task.unit)
        for stage in stages
        for task in tasks_of(stage, config, shared_parts(stage, config, pair), prompts)
        if config.execution.remeasure == "all" or not store.exists(stage.name, task.key)
    ]
    if not missing:
        return
    try:
        pace = timed_pace(pair)
    except Exception as error:  # a bug is raised again; other faults are told where they measure
        if not is_of_the_prompt(error):
            raise
        return
    if (seconds := seconds_of(missing, config, pace)) >= LEAST_SAID_S:
        print(duration_words(seconds, pace), file=sys.stderr, flush=True)
