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
    or_null,
    real,
    setting,
    temperature_rule,
    whole,
)

PROJECT_ROOT = Path(__file__).resolve().parents[2]
SWEPT_THRESHOLDS = (2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 6.5, 7.0, 7.5, 8.0)


@dataclass(frozen=True)
class ModelsConfig(Section):
    """The pair."""

    NAME: ClassVar[str] = "models"
    name: str = setting("smollm2", LABEL, "what the run's folder calls the pair")
    verifier: str = setting(
        "embedded:smollm2", TEXT, "the model that answers: a Hub id, a directory, a GGUF file, or embedded:NAME"
    )
    draft: str = setting("data/models/smollm2-draft", TEXT, "the model that drafts, with the same tokenizer")
    trust_remote_code: bool = setting(False, FLAG, "whether code that comes with a model may run")


@dataclass(frozen=True)
class PromptsConfig(Section):
    """The prompt file, what of it is asked, and in which versions."""

    NAME: ClassVar[str] = "prompts"
    name: str = setting("study50", LABEL, "what the run's folder calls the prompts")
    path: str = setting("data/prompts/study50.jsonl", TEXT, "the prompt file: JSON, JSONL, CSV, TSV, Parquet or TXT")
    categories: tuple[str, ...] | None = setting(
        None, optional(one_or_more(TEXT_OR_NUMBER)), "which of its categories, such as [factual,code]; null: all"
    )
    per_category: int | None = setting(
        None, optional(whole(1, 1_000_000)), "how many of each, spread over its lengths; null: all"
    )
    text_column: str = setting("text", TEXT, "column of the prompt's text")
    id_column: str = setting("prompt_id", TEXT, "column of its id")
    category_column: str = setting("category", TEXT, "column of its category")
    messages_column: str = setting("messages", TEXT, "column of a conversation, in place of a text")
    context_column: str = setting(
        "none", TEXT, "column of what follows the text, such as Alpaca's input; none: no such column"
    )
    group_column: str = setting(
        "none",
        TEXT,
        "column whose equal values mark prompts that are not independent of each other; none: no such column",
    )
    template: str = setting("default", TEXT, "the chat template, where a model has several by name")
    thinking: bool | None = setting(
        None, optional(FLAG), "for chat templates with such a switch; null: their own default"
    )
    versions: str = setting(
        "none",
        one_of("none", "poisoned", "hidden", "lowered", "temperatures"),
        "asks each prompt in several ways: over contexts made worse, with a position hidden, with a key scored lower, "
        "at other temperatures",
    )
    contexts: str = setting("data/prompts/contexts.yaml", TEXT, "the file of contexts, for poisoned")
    doses: int = setting(2, whole(1, 3), "how much worse contexts are made at most, for poisoned")
    lowered_by: tuple[float, ...] = setting(
        (1.0, 2.0, 4.0), one_or_more(real(0, 100, above_low=True)), "what is taken from a key's score, for lowered"
    )
    temperatures: tuple[float, ...] = setting(
        (0.3, 0.5, 0.9, 1.1, 1.3), one_or_more(temperature_rule()), "of the verifier, for temperatures"
    )


@dataclass(frozen=True)
class PrefillConfig(Section):
    """How sinks are found."""

    NAME: ClassVar[str] = "prefill"
    window: int = setting(16, whole(1, 100_000), "the observation window: this many last prompt positions")
    threshold: float = setting(6.0, real(0, above_low=True), "a position with a z-score above it is a sink")


@dataclass(frozen=True)
class DecodeConfig(Section):
    """The verifier's own answers."""

    NAME: ClassVar[str] = "decode"
    temperature: float = setting(0.7, temperature_rule(), "the verifier's own; 0: greedy")
    top_p: float = setting(0.9, real(0, 1, above_low=True), "the verifier's own nucleus; 1: everything")
    max_new_tokens: int = setting(128, whole(1, 1_000_000), "the longest answer")
    repetitions: int = setting(3, whole(1, 10_000), "answers a prompt, decoded as one batch")
    recorded_candidates: int = setting(5, whole(1, 100), "most likely tokens kept for every position")
    attention_heads: bool = setting(
        False, FLAG, "records what each attention head does at every step too, some half a megabyte an answer"
    )


@dataclass(frozen=True)
class SpecConfig(Section):
    """Speculative decoding: every combination of gamma, proposer, stop rule, temperature and top_p is measured."""

    NAME: ClassVar[str] = "spec"
    gamma: tuple[int, ...] = setting((4,), one_or_more(whole(1, 64)), "tokens proposed in a full round")
    repetitions: int = setting(1, whole(1, 10_000), "speculative answers a prompt and condition")
    temperature: tuple[float, ...] = setting(
        (0.7,), or_null(one_or_more(temperature_rule())), "of both models; null: decode's"
    )
    top_p: tuple[float, ...] = setting(
        (0.9,), or_null(one_or_more(real(0, 1, above_low=True))), "of both models; null: decode's"
    )
    proposer: tuple[str, ...] = setting(
        ("model",),
        one_or_more(one_of("model", "prompt_lookup", "early_exit")),
        "who drafts: the draft model, text that came before, or the verifier's first layers",
    )
    exit_layers: int = setting(2, whole(1, 1000), "layers of the verifier that draft, with early_exit")
    lookup_tokens: int = setting(3, whole(1, 100), "longest match, with prompt_lookup")
    stop: tuple[str, ...] = setting(
        ("none",),
        one_or_more(one_of("none", "entropy", "bound"), distinct=False),
        "what ends a draft early: nothing, the draft's entropy, or its bound on acceptance",
    )
    stop_threshold: tuple[float | None, ...] = setting(
        (0.5,),
        one_or_more(optional(real(0)), distinct=False),
        "of every rule, or a list as long as stop; none needs none",
    )
    baseline: bool = setting(
        True, FLAG, "whether the verifier alone is timed too; without it what is relative to it stays empty"
    )

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
    """Keys dropped from a cache after prefill."""

    NAME: ClassVar[str] = "retention"
    budgets: tuple[float, ...] | None = setting(
        None,
        optional(one_or_more(real(0, 1, above_low=True, below_high=True))),
        "shares of the prompt's keys that are kept; null: not measured",
    )


@dataclass(frozen=True)
class AnalysisConfig(Section):
    """What is asked of the tables."""

    NAME: ClassVar[str] = "analysis"
    bootstrap_samples: int = setting(2000, whole(1, 1_000_000), "behind every interval")
    confidence: float = setting(0.95, real(0, 1, above_low=True, below_high=True), "coverage of every interval")
    seed: int = setting(0, whole(0, 2**32 - 1), "of the bootstrap behind intervals")
    thresholds: tuple[float, ...] = setting(
        SWEPT_THRESHOLDS, one_or_more(real(0, above_low=True)), "sink thresholds that are tried on the stored z-scores"
    )


@dataclass(frozen=True)
class ExecutionConfig(Section):
    """Where and how it runs."""

    NAME: ClassVar[str] = "execution"
    name: str = setting("local", LABEL, "what this choice is called")
    strategy: str = setting(
        "local", one_of("local", "ray"), "how units are mapped over: one after the other, or by a pool of Ray workers"
    )
    address: str = setting("local", TEXT, "with ray: local starts a cluster here, auto or HOST:PORT joins one")
    workers: int = setting(
        2,
        whole(1, 10_000),
        "with ray: how many, each with the pair and threads CPUs (and a GPU where the device is one)",
    )
    store: str = setting(
        "store",
        TEXT,
        "where results are: a path from output_dir on, or a URI that every worker can reach, such as s3://bucket/x",
    )
    device: str = setting("auto", one_of("auto", "cpu", "cuda", "mps"), "auto: the first there is of mps, cuda, cpu")
    dtype: str = setting(
        "auto",
        one_of("auto", "float32", "bfloat16", "float16"),
        "auto: float16 on mps, bfloat16 on cuda and CPUs that multiply it in hardware, else float32",
    )
    threads: int | None = setting(
        None,
        optional(whole(1, 1024)),
        "of the CPU; null: one or all cores, as a trial of a second finds a step of the verifier faster",
    )
    remeasure: str = setting(
        "none",
        one_of("none", "busy", "all"),
        "timings taken again although they are there: those of a machine that did something else too, or all",
    )
    progress: str = setting("auto", one_of("auto", "on", "off"), "bars on stderr; auto: on a terminal")


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
    seed: int = setting(0, whole(0, 2**32 - 1), "behind all that is sampled")
    output_dir: str = setting("outputs", TEXT, "where runs and results are written")

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


def _all_fields() -> dict[str, dataclasses.Field[Any]]:
    sections: list[type[Section]] = [StudyConfig, *SECTIONS.values()]
    return {
        f"{section.NAME}.{setting_field.name}".lstrip("."): setting_field
        for section in sections
        for setting_field in dataclasses.fields(section)
        if "rule" in setting_field.metadata
    }


def all_rules() -> dict[str, Rule]:
    """Every key that holds a value, as an override names it (`seed`, `spec.gamma`, ...), with its rule."""
    return {key: setting_field.metadata["rule"] for key, setting_field in _all_fields().items()}


def all_meanings() -> dict[str, str]:
    """What each of the same keys means."""
    return {key: setting_field.metadata["meaning"] for key, setting_field in _all_fields().items()}


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
