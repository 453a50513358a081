"""What a stage is: its units of work, and all that can change their numbers, from which the store's keys are made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from specstudy.condition import Condition
from specstudy.config import PROJECT_ROOT, StudyConfig
from specstudy.prompts import Prompt, RenderedPrompt
from specstudy.running.measuring_code import STAGES, code_hash, measuring_files
from specstudy.tables.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from specstudy.models.load import LanguageModel, Pair

Records = Mapping[str, Sequence[object]]
Tables = Mapping[str, pa.Table]


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

    `refuse` raises UserError, before any work, for models that it cannot be measured with. `finish` adds to a result's
    tables, when they are published, what follows from further settings by arithmetic.
    """

    name: str
    units: Callable[[StudyConfig, RenderedPrompt], list[Unit]]
    settings: Callable[[StudyConfig, Unit], Mapping[str, object]]
    measure: Callable[[Pair, StudyConfig, Unit], Records]
    models: tuple[str, ...] = ("verifier", "draft")
    generates: bool = True
    finish: Callable[[StudyConfig, Tables], Tables] = lambda config, tables: tables
    check: Callable[[Pair, StudyConfig, Sequence[RenderedPrompt]], dict[str, Any]] | None = None
    refuse: Callable[[Pair], None] = lambda pair: None

    @property
    def code(self) -> str:
        """Hash of all source that its numbers depend on."""
        return code_hash(measuring_files(STAGES / f"{self.name}.py"), PROJECT_ROOT)


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
