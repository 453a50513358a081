"""What a stage is: its units of work, and all that can change their numbers, from which the store's keys are made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from measuring_code import PIPELINES, code_hash, measuring_files

from specstudy.condition import Condition
from specstudy.config import PROJECT_ROOT, StudyConfig
from specstudy.errors import one_line
from specstudy.prompts import Prompt, RenderedPrompt
from specstudy.records import ErrorRow
from specstudy.tables.schema import SCHEMA_VERSION
from specstudy.tables.store import result_key

if TYPE_CHECKING:
    from specstudy.models.load import LanguageModel, Pair

Records = Mapping[str, Sequence[object]]
Tables = Mapping[str, pa.Table]

_LONGEST_MESSAGE = 2_000


@dataclass(frozen=True)
class Unit:
    """A piece of work that is stored as one result."""

    rendered: RenderedPrompt
    condition: Condition | None = None
    repetition: int | None = None

    @property
    def prompt(self) -> Prompt:
        return self.rendered.prompt

    @property
    def order(self) -> tuple[object, ...]:
        """Where it stands among the units of its stage in the tables: as their key columns are sorted."""
        s = self.condition
        values = (s.proposer, s.stop, s.stop_threshold, s.temperature, s.top_p, s.gamma) if s else ()
        null_last = ((value is None, value) for value in values)
        return (self.prompt.prompt_id, s is not None, *null_last, self.repetition or 0)


@dataclass(frozen=True)
class Stage:
    """What a stage measures: its units for a prompt, and what their numbers depend on, nothing else, so that runs can
    share results: the settings of a unit, the models, and whether it generates (the seed, the ids that end a text).

    `finish` adds to a result's tables, when they are published, what follows from further settings by arithmetic.
    """

    name: str
    units: Callable[[StudyConfig, RenderedPrompt], list[Unit]]
    settings: Callable[[StudyConfig, Unit], Mapping[str, object]]
    measure: Callable[[Pair, StudyConfig, Unit], Records]
    models: tuple[str, ...] = ("verifier", "draft")
    generates: bool = True
    finish: Callable[[StudyConfig, Tables], Tables] = lambda config, tables: tables
    check: Callable[[Pair, StudyConfig, Sequence[RenderedPrompt]], dict[str, Any]] | None = None

    @property
    def code(self) -> str:
        """Hash of all source that its numbers depend on."""
        return code_hash(measuring_files(PIPELINES / f"{self.name}.py"), PROJECT_ROOT)


@dataclass(frozen=True)
class Failure:
    """A prompt that could not be measured."""

    stage: str
    prompt_id: str
    kind: str
    message: str

    @staticmethod
    def of(stage: str, prompt_id: str, error: Exception) -> Failure:
        kind = type(error).__name__
        return Failure(stage, prompt_id, kind, one_line(str(error), _LONGEST_MESSAGE) or kind)

    def row(self) -> ErrorRow:
        return ErrorRow(stage=self.stage, prompt_id=self.prompt_id, kind=self.kind, message=self.message)


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


def is_of_the_prompt(error: Exception) -> bool:
    """Whether this may be the fault of one prompt, so that the others go on: NaN, memory, an odd text."""
    from specstudy.models.device import is_out_of_memory

    return isinstance(error, FloatingPointError | ValueError) or is_out_of_memory(error)


def shared_parts(stage: Stage, config: StudyConfig, pair: Pair) -> dict[str, object]:
    """All that can change a stage's numbers, except what differs from unit to unit."""
    import torch
    import transformers

    parts = {
        "stage": stage.name,
        "tokenizer": pair.tokenizer_digest,
        "device": str(pair.verifier.device),
        "dtype": str(pair.verifier.dtype),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "schema_version": SCHEMA_VERSION,
        "code": stage.code,
    }
    for role in stage.models:
        parts |= _model_parts(role, getattr(pair, role))
    return parts | ({"seed": config.seed, "eos_ids": list(pair.eos_ids)} if stage.generates else {})


def _model_parts(role: str, model: LanguageModel) -> dict[str, object]:
    from specstudy.models.fingerprint import own_code_digest

    return {
        role: model.fingerprint,
        f"{role}_config": _digest(_told(model.module.config.to_dict())),
        f"{role}_code": own_code_digest(model.module),
        f"{role}_emits": _digest([model.vocabulary, [] if model.unused_ids is None else model.unused_ids.tolist()]),
        f"{role}_linear_layers": model.linear_layers,
    }


def _told(settings: dict[str, Any]) -> dict[str, Any]:
    """What a model's configuration says beyond its weights (rope, windows, scaling)."""
    return {k: v for k, v in settings.items() if k not in ("_name_or_path", "transformers_version", "dtype")}


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def _unit_parts(unit: Unit) -> dict[str, object]:
    return {
        "prompt": asdict(unit.prompt),
        "token_ids": unit.rendered.token_ids,
        "structure": [(p.role, p.structural_role) for p in unit.rendered.positions],
        "rendered": [unit.rendered.text, *unit.rendered.notes],
        "repetition": unit.repetition,
    }
