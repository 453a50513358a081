"""The configuration of a study: frozen dataclasses that refuse a wrong key, type or value in one line.

The defaults here are those of `conf/`, where each choice is a file. Nothing in this module knows Hydra.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

from specstudy.condition import STUDY_CONDITION, Condition
from specstudy.errors import UserError, no_such
from specstudy.rules import (
    FLAG,
    LABEL,
    TEXT,
    TEXT_OR_NUMBER,
    Rule,
    Section,
    one_of,
    one_or_more,
    optional,
    real,
    setting,
    temperature_rule,
    whole,
)

PROJECT_ROOT = Path(__file__).resolve().parents[2]
SWEPT_THRESHOLDS = (2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 6.5, 7.0, 7.5, 8.0)


@dataclass(frozen=True)
class ModelsConfig(Section):
    """The pair. A model is a Hub id, a directory, a GGUF file, or `embedded:NAME`."""

    NAME: ClassVar[str] = "models"
    name: str = setting("smollm2", LABEL)
    verifier: str = setting("embedded:smollm2", TEXT)
    draft: str = setting("data/models/smollm2-draft", TEXT)
    trust_remote_code: bool = setting(False, FLAG)


@dataclass(frozen=True)
class PromptsConfig(Section):
    """The prompt file, which of its categories, and how many of each, spread over its lengths (null: all).

    Of columns, `none` stands for no such column; what is in `context_column` follows the text; prompts of one value in
    `group_column` are not independent of each other. `template` names one of several chat templates. `thinking`
    switches the thinking of templates that can (null: the template's own default). `versions` asks each prompt in
    several ways: over contexts made worse at 1 to `doses` (`contexts` names the file of contexts), with a position
    hidden from attention, with the scores of a key `lowered_by` something, or at other `temperatures` of the verifier.
    """

    NAME: ClassVar[str] = "prompts"
    name: str = setting("study50", LABEL)
    path: str = setting("data/prompts/study50.jsonl", TEXT)
    categories: tuple[str, ...] | None = setting(None, optional(one_or_more(TEXT_OR_NUMBER)))
    per_category: int | None = setting(None, optional(whole(1, 1_000_000)))
    text_column: str = setting("text", TEXT)
    id_column: str = setting("prompt_id", TEXT)
    category_column: str = setting("category", TEXT)
    messages_column: str = setting("messages", TEXT)
    context_column: str = setting("none", TEXT)
    group_column: str = setting("none", TEXT)
    template: str = setting("default", TEXT)
    thinking: bool | None = setting(None, optional(FLAG))
    versions: str = setting("none", one_of("none", "poisoned", "hidden", "lowered", "temperatures"))
    contexts: str = setting("data/prompts/contexts.yaml", TEXT)
    doses: int = setting(2, whole(1, 3))
    lowered_by: tuple[float, ...] = setting((1.0, 2.0, 4.0), one_or_more(real(0, 100, above_low=True)))
    temperatures: tuple[float, ...] = setting((0.3, 0.5, 0.9, 1.1, 1.3), one_or_more(temperature_rule()))


@dataclass(frozen=True)
class PrefillConfig(Section):
    """How sinks are found: the observation window in positions, and the z-score above which one is a sink."""

    NAME: ClassVar[str] = "prefill"
    window: int = setting(16, whole(1, 100_000))
    threshold: float = setting(6.0, real(0, above_low=True))


@dataclass(frozen=True)
class DecodeConfig(Section):
    """The verifier's own sampling; temperature 0 is greedy. `attention_heads` also records what each attention head
    does at every step, some half a megabyte an answer."""

    NAME: ClassVar[str] = "decode"
    temperature: float = setting(0.7, temperature_rule())
    top_p: float = setting(0.9, real(0, 1, above_low=True))
    max_new_tokens: int = setting(128, whole(1, 1_000_000))
    repetitions: int = setting(3, whole(1, 10_000))
    recorded_candidates: int = setting(5, whole(1, 100))
    attention_heads: bool = setting(False, FLAG)


@dataclass(frozen=True)
class SpecConfig(Section):
    """Speculative decoding: every combination of gamma, proposer, stop rule, temperature and top_p is measured.

    In `conf/` and overrides a temperature or top_p of null follows decode's. `stop_threshold` is one value for every
    rule, or a list as long as `stop`; `none` has no use for one.
    """

    NAME: ClassVar[str] = "spec"
    gamma: tuple[int, ...] = setting((4,), one_or_more(whole(1, 64)))
    repetitions: int = setting(1, whole(1, 10_000))
    temperature: tuple[float, ...] = setting((0.7,), one_or_more(temperature_rule()))
    top_p: tuple[float, ...] = setting((0.9,), one_or_more(real(0, 1, above_low=True)))
    proposer: tuple[str, ...] = setting(("model",), one_or_more(one_of("model", "prompt_lookup", "early_exit")))
    exit_layers: int = setting(2, whole(1, 1000))
    lookup_tokens: int = setting(3, whole(1, 100))
    stop: tuple[str, ...] = setting(("none",), one_or_more(one_of("none", "entropy", "bound"), distinct=False))
    stop_threshold: tuple[float | None, ...] = setting((0.5,), one_or_more(optional(real(0)), distinct=False))
    baseline: bool = setting(True, FLAG)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_stop_rules()

    def _check_stop_rules(self) -> None:
        if len(self.stop_threshold) not in (1, len(self.stop)):
            raise UserError(
                f"spec.stop_threshold must be one value, or a list as long as spec.stop ({len(self.stop)}); "
                f"got {len(self.stop_threshold)}"
            )
        for stop, threshold in self.rules:
            if stop != "none" and threshold is None:
                raise UserError(f"spec.stop_threshold of {stop} must be a number; got null")
            if stop != "none" and "prompt_lookup" in self.proposer:
                raise UserError(f"spec.stop={stop} asks for the draft's entropy; spec.proposer=prompt_lookup has none")
        if len(set(self.rules)) != len(self.rules):
            raise UserError("spec.stop and spec.stop_threshold together must be distinct; one rule is listed twice")

    @property
    def rules(self) -> list[tuple[str, float | None]]:
        """The stop rules with their thresholds."""
        thresholds = self.stop_threshold * len(self.stop) if len(self.stop_threshold) == 1 else self.stop_threshold
        return [(s, None if s == "none" else t) for s, t in zip(self.stop, thresholds, strict=True)]

    @property
    def conditions(self) -> list[Condition]:
        """Every combination, in the order in which the values are listed."""
        return [
            Condition(gamma, proposer, stop, temperature, top_p, threshold)
            for gamma in self.gamma
            for proposer in self.proposer
            for stop, threshold in self.rules
            for temperature in self.temperature
            for top_p in self.top_p
        ]

    @property
    def primary(self) -> Condition:
        """The condition that speaks for the study: the first listed at the gamma nearest to 4 (the first such)."""
        return min(self.conditions, key=lambda condition: abs(condition.gamma - STUDY_CONDITION.gamma))


@dataclass(frozen=True)
class RetentionConfig(Section):
    """Keys dropped from a cache after prefill: which shares of the prompt's tokens are kept (null: not measured)."""

    NAME: ClassVar[str] = "retention"
    budgets: tuple[float, ...] | None = setting(
        None, optional(one_or_more(real(0, 1, above_low=True, below_high=True)))
    )


@dataclass(frozen=True)
class AnalysisConfig(Section):
    """The bootstrap behind every interval, and the sink thresholds that are tried on the stored z-scores."""

    NAME: ClassVar[str] = "analysis"
    bootstrap_samples: int = setting(2000, whole(1, 1_000_000))
    confidence: float = setting(0.95, real(0, 1, above_low=True, below_high=True))
    seed: int = setting(0, whole(0, 2**32 - 1))
    thresholds: tuple[float, ...] = setting(SWEPT_THRESHOLDS, one_or_more(real(0, above_low=True)))


@dataclass(frozen=True)
class ExecutionConfig(Section):
    """Where and how it runs; `threads` of null lets a short trial choose between one and all cores. `remeasure` says
    which timings are taken again although they are there: those of a busy machine, or all. `address` and `workers` are
    those of a Ray cluster, and `store` is a path from output_dir on, or a URI that every worker can reach."""

    NAME: ClassVar[str] = "execution"
    name: str = setting("local", LABEL)
    strategy: str = setting("local", one_of("local", "ray"))
    address: str = setting("local", TEXT)
    workers: int = setting(2, whole(1, 10_000))
    store: str = setting("store", TEXT)
    device: str = setting("auto", one_of("auto", "cpu", "cuda", "mps"))
    dtype: str = setting("auto", one_of("auto", "float32", "bfloat16", "float16"))
    threads: int | None = setting(None, optional(whole(1, 1024)))
    remeasure: str = setting("none", one_of("none", "busy", "all"))
    progress: str = setting("auto", one_of("auto", "on", "off"))


@dataclass(frozen=True)
class StudyConfig(Section):
    """One configuration run over one prompt set."""

    models: ModelsConfig = field(default_factory=ModelsConfig)
    prompts: PromptsConfig = field(default_factory=PromptsConfig)
    prefill: PrefillConfig = field(default_factory=PrefillConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    spec: SpecConfig = field(default_factory=SpecConfig)
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    analysis: AnalysisConfig = field(default_factory=AnalysisConfig)
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)
    seed: int = setting(0, whole(0, 2**32 - 1))
    output_dir: str = setting("outputs", TEXT)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_versions()

    def _check_versions(self) -> None:
        """Versions that alter the models say what the verifier and the draft do: there must be one of each."""
        versions, spec = self.prompts.versions, self.spec
        if versions in ("hidden", "lowered", "temperatures") and spec.proposer != ("model",):
            raise UserError(
                f"prompts.versions={versions} alters the draft model; spec.proposer must be model, got "
                f"{','.join(spec.proposer)}"
            )
        if versions == "temperatures" and spec.temperature != (self.decode.temperature,):
            raise UserError(
                "prompts.versions=temperatures imposes one temperature on both stages; spec.temperature must be "
                f"decode's {self.decode.temperature:g}, got {','.join(f'{t:g}' for t in spec.temperature)}"
            )


SECTIONS: dict[str, type[Section]] = {
    name: kind
    for name, kind in get_type_hints(StudyConfig).items()
    if isinstance(kind, type) and issubclass(kind, Section)
}


def setting_names(section: type[Section]) -> list[str]:
    """The names of a section's settings, in the order of the class."""
    return [setting_field.name for setting_field in dataclasses.fields(section)]


def all_rules() -> dict[str, Rule]:
    """Every key that holds a value, as an override names it (`seed`, `spec.gamma`, ...), with its rule."""
    sections: list[type[Section]] = [StudyConfig, *SECTIONS.values()]
    return {
        f"{section.NAME}.{setting_field.name}".lstrip("."): setting_field.metadata["rule"]
        for section in sections
        for setting_field in dataclasses.fields(section)
        if "rule" in setting_field.metadata
    }


def from_mapping(values: Mapping[str, Any]) -> StudyConfig:
    """A checked StudyConfig from plain nested values, such as a composed Hydra config or a run's `config.yaml`.

    Raises UserError, one line, for the first key that does not exist or value that is not allowed.
    """
    check_keys(values)
    decode = values.get("decode", {})
    spec = dict(values.get("spec", {}))
    for name in ("temperature", "top_p"):
        if spec.get(name) is None:
            spec[name] = decode.get(name, getattr(DecodeConfig, name))
    given: dict[str, Any] = {**values, "spec": spec}
    for name, section in SECTIONS.items():
        given[name] = section(**given.get(name, {}))
    return StudyConfig(**given)


def to_mapping(config: StudyConfig) -> dict[str, Any]:
    """Plain nested values, tuples as lists, ready for YAML or JSON; `from_mapping` gives the same config back."""

    def plain(value: object) -> object:
        if isinstance(value, dict):
            return {name: plain(item) for name, item in value.items()}
        return list(value) if isinstance(value, tuple) else value

    return {name: plain(value) for name, value in dataclasses.asdict(config).items()}


def check_keys(values: Mapping[str, Any]) -> None:
    """Raise UserError for the first key that no setting has."""
    for name, value in values.items():
        if name not in setting_names(StudyConfig):
            raise unknown_key(name)
        if name in SECTIONS:
            if not isinstance(value, Mapping):
                raise UserError(f"{name} is a group of settings; got {value!r}")
            for key in value:
                if key not in setting_names(SECTIONS[name]):
                    raise unknown_key(f"{name}.{key}")


def unknown_key(key: str) -> UserError:
    """The error for a key that does not exist: the nearest one that does, and those it could have been."""
    section, dot, last = key.partition(".")
    if dot and section in SECTIONS:
        valid = [f"{section}.{name}" for name in setting_names(SECTIONS[section])]
    else:
        valid = setting_names(StudyConfig)
    elsewhere = [other for other in all_rules() if other.rpartition(".")[2] == (last or section)]
    elsewhere += difflib.get_close_matches(key, all_rules(), n=1)
    return no_such("key", key, valid, nearest=next(iter(elsewhere), ""))


def local_path(value: str) -> Path:
    """Where a path setting points: `~` is the home directory, a relative path starts at the project root."""
    return PROJECT_ROOT / Path(value).expanduser()
