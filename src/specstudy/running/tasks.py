"""A task is a unit to be measured with its key in the store: how it is made, measured, and how it may fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from specstudy.config import StudyConfig
from specstudy.errors import one_line
from specstudy.prompts import RenderedPrompt
from specstudy.records import ErrorRow
from specstudy.running.stage import Stage, Unit
from specstudy.tables.store import Store, result_key

if TYPE_CHECKING:
    from specstudy.models.load import Pair

_LONGEST_MESSAGE = 2_000


def failure(stage: str, prompt_id: str, error: Exception) -> ErrorRow:
    """The row of a prompt that could not be measured."""
    kind = type(error).__name__
    message = one_line(str(error), _LONGEST_MESSAGE) or kind
    return ErrorRow(stage=stage, prompt_id=prompt_id, kind=kind, message=message)


@dataclass(frozen=True)
class Task:
    """A unit with the key that its result has in the store. What the key is made of is put together when it is asked
    for: there may be very many tasks."""

    unit: Unit
    shared: Mapping[str, object]
    settings: Mapping[str, object]

    @cached_property
    def key(self) -> str:
        return result_key(self.parts)

    @property
    def parts(self) -> dict[str, object]:
        return {**self.shared, **self.parts_of_its_own}

    @property
    def parts_of_its_own(self) -> dict[str, object]:
        return {"settings": dict(self.settings), **_unit_parts(self.unit)}


def tasks_of(
    stage: Stage, config: StudyConfig, shared: Mapping[str, object], prompts: Sequence[RenderedPrompt]
) -> list[Task]:
    """Everything that a stage has to do, in the order of the prompts; `shared` is of `shared_parts`."""
    return [
        Task(unit, shared, stage.settings(config, unit)) for prompt in prompts for unit in stage.units(config, prompt)
    ]


Execute = Callable[[Stage, Sequence[Task]], Iterable[tuple[Task, ErrorRow | None]]]
"""Measures tasks and stores their results; gives each back as it is done, in any order, with what failed."""


def measure_task(stage: Stage, config: StudyConfig, pair: Pair, store: Store, task: Task) -> ErrorRow | None:
    """Measure a unit and store the result, or say what of the prompt made that fail."""
    from specstudy.models.device import empty_cache

    try:
        store.put(stage.name, task.key, task.parts, stage.measure(pair, config, task.unit))
    except Exception as error:  # sorted at once: a bug is raised again
        if not is_of_the_prompt(error):
            raise
        return failure(stage.name, task.unit.prompt.prompt_id, error)
    finally:
        empty_cache(pair.verifier.device)
    return None


def is_of_the_prompt(error: Exception) -> bool:
    """Whether this may be the fault of one prompt, so that the others go on: NaN, memory, an odd text."""
    from specstudy.models.device import is_out_of_memory

    return isinstance(error, FloatingPointError | ValueError) or is_out_of_memory(error)


def _unit_parts(unit: Unit) -> dict[str, object]:
    return {
        "prompt": {k: v for k, v in asdict(unit.prompt).items() if k != "group"},  # no number depends on it
        "token_ids": unit.rendered.token_ids,
        "structure": [(p.role, p.structural_role) for p in unit.rendered.positions],
        "rendered": [unit.rendered.text, *unit.rendered.notes],
        "repetition": unit.repetition,
    }
