"""How stages run: models loaded once, each unit of work looked up in the store or measured, tables published whole."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from description import describe_run
from progress import Progress

from specstudy.config import PROJECT_ROOT, StudyConfig, local_path, to_mapping
from specstudy.prompts import Columns, Prompt, RenderedPrompt, read_prompts, render, select
from specstudy.prompts.poisoned import check_contexts, read_contexts
from specstudy.prompts.versions import at_temperatures, poisoned, with_hidden_positions
from specstudy.records import ErrorRow, PromptVersion
from specstudy.setting import Setting
from specstudy.tables import manifest
from specstudy.tables.environment import load_average
from specstudy.tables.run_directory import consolidate, publish_table, read_table, run_directory, run_path, table_path
from specstudy.tables.schema import SCHEMA_VERSION, to_records, to_table
from specstudy.tables.store import PACKAGE, Store, code_hash, result_key

if TYPE_CHECKING:
    from specstudy.models.load import Pair

Records = Mapping[str, Sequence[object]]

PIPELINES = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Unit:
    """A piece of work that is stored as one result."""

    rendered: RenderedPrompt
    setting: Setting | None = None
    repetition: int | None = None

    @property
    def prompt(self) -> Prompt:
        return self.rendered.prompt


@dataclass(frozen=True)
class Stage:
    """What a stage measures: its units for a prompt, the settings (those of the unit, no others, so that runs can share
    results) and the source files that a unit's numbers depend on."""

    name: str
    units: Callable[[StudyConfig, RenderedPrompt], list[Unit]]
    settings: Callable[[StudyConfig, Unit], Mapping[str, object]]
    measure: Callable[[Pair, StudyConfig, Unit], Records]
    source_files: tuple[str, ...]
    check: Callable[[Pair, StudyConfig, Sequence[RenderedPrompt]], dict[str, Any]] | None = None

    @property
    def code(self) -> str:
        """Hash of all source that its numbers depend on: these files, and the stage's own, which seeds it."""
        return code_hash([*map(PACKAGE.joinpath, self.source_files), PIPELINES / f"{self.name}.py"], PROJECT_ROOT)


@dataclass
class Failure:
    """A prompt that could not be measured."""

    stage: str
    prompt_id: str
    error: Exception

    def row(self) -> ErrorRow:
        message = " ".join(str(self.error).split()) or type(self.error).__name__
        return ErrorRow(stage=self.stage, prompt_id=self.prompt_id, kind=type(self.error).__name__, message=message)


class PromptTooLongError(ValueError):
    """Prompt and answer do not fit into the model's context."""


def without_result_neutral_settings(config: StudyConfig) -> dict[str, object]:
    """The configuration less what changes no result: where it is written, how it is shown."""
    mapping = to_mapping(config)
    del mapping["output_dir"]
    del mapping["execution"]["progress"]
    return mapping


def run_path_of(config: StudyConfig) -> Path:
    """Where the run of this configuration lies."""
    return run_path(
        local_path(config.output_dir), config.models.name, config.prompts.name, without_result_neutral_settings(config)
    )


def run(config: StudyConfig, stages: Sequence[Stage], after: Callable[[Path, StudyConfig], None] | None = None) -> int:
    """Run stages over the configured prompts, then `after` on the finished tables. 0, or 1 if prompts failed."""
    output_dir = local_path(config.output_dir)
    # Whatever can be refused is refused before there is a run directory.
    prompts = chosen_prompts(config)
    check_versions(config, prompts)
    load = find_models(config) if stages else None
    with run_directory(
        output_dir,
        models=config.models.name,
        prompts=config.prompts.name,
        config=without_result_neutral_settings(config),
    ) as run_dir:
        manifest.start(run_dir)
        failures: list[Failure] = []
        if load:
            failures = _measure(config, stages, prompts, load(), run_dir, Store(output_dir / "store"))
        if after:
            after(run_dir, config)
        manifest.finish(run_dir)
    return _report_failures(failures, run_dir)


def chosen_prompts(config: StudyConfig) -> list[Prompt]:
    """The prompts that the configuration names."""
    return select(_all_prompts(config), config.prompts.categories, config.prompts.per_category)


def _all_prompts(config: StudyConfig) -> list[Prompt]:
    p = config.prompts
    columns = Columns(text=p.text_column, prompt_id=p.id_column, category=p.category_column)
    return read_prompts(local_path(p.path), columns)


def check_versions(config: StudyConfig, prompts: Sequence[Prompt]) -> None:
    """Raise UserError for versions that these prompts cannot have, as far as files tell."""
    if config.prompts.versions == "poisoned":
        contexts = read_contexts(local_path(config.prompts.contexts))
        check_contexts([prompt.prompt_id for prompt in prompts], contexts, config.prompts.doses)


def prompt_versions(config: StudyConfig, prompts: Sequence[Prompt], pair: Pair) -> Sequence[Prompt]:
    """The prompts in every version that the configuration asks for. Raises UserError where a model cannot have it."""
    p = config.prompts
    if p.versions == "poisoned":

        def count(text: str) -> int:
            return len(pair.tokenizer(text, add_special_tokens=False)["input_ids"])

        category = {prompt.prompt_id: prompt.category for prompt in _all_prompts(config)}
        return poisoned(prompts, read_contexts(local_path(p.contexts)), category, p.doses, config.seed, count)
    if p.versions == "hidden":
        from specstudy.models.without_position import refuse_unless_maskable

        for model in (pair.verifier, pair.draft):
            refuse_unless_maskable(model.module)
        return with_hidden_positions(prompts)
    if p.versions == "temperatures":
        return at_temperatures(prompts, p.temperatures, config.spec.primary.temperature)
    return prompts


def find_models(config: StudyConfig) -> Callable[[], Pair]:
    """What loads the configured pair on its device. Raises UserError for all that small files can tell."""
    import torch
    import transformers

    from specstudy.models.device import choose_device, choose_dtype, usable_cores
    from specstudy.models.load import find_pair, load_found_pair

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(config.execution.threads or usable_cores())
    device = choose_device(config.execution.device)
    dtype = choose_dtype(config.execution.dtype, device)
    found = find_pair(config.models.verifier, config.models.draft, config.models.trust_remote_code)
    return lambda: load_found_pair(found, device, dtype)


def _measure(
    config: StudyConfig, stages: Sequence[Stage], prompts: Sequence[Prompt], pair: Pair, run_dir: Path, store: Store
) -> list[Failure]:
    prompts = prompt_versions(config, prompts, pair)
    describe_run(config, pair, {stage.name: stage.code for stage in stages}, prompts, run_dir)
    _publish_versions(run_dir, prompts)
    rendered, failures = _render(prompts, pair, config)
    if rendered:
        notes = Counter(note for prompt in rendered for note in prompt.notes)
        described = {"generation_prompt": rendered[0].generation_prompt, "rendering_notes": dict(sorted(notes.items()))}
        manifest.update(run_dir, "prompts", described)
    with Progress(config.execution.progress) as progress:
        for stage in stages:
            failures += _run_stage(stage, config, pair, rendered, run_dir, store, progress)
    for stage in stages:
        if stage.check and rendered:
            _check(stage, stage.check, config, pair, rendered, run_dir)
    _publish_errors(run_dir, failures, {stage.name for stage in stages})
    return failures


def _render(prompts: Sequence[Prompt], pair: Pair, config: StudyConfig) -> tuple[list[RenderedPrompt], list[Failure]]:
    rendered, failures = [], []
    longest = pair.context_length
    for prompt in prompts:
        try:
            shown = render(prompt, pair.tokenizer, config.prompts.thinking)
            needed = len(shown.positions) + config.decode.max_new_tokens
            if longest is not None and needed > longest:
                raise PromptTooLongError(
                    f"{len(shown.positions)} prompt tokens and {config.decode.max_new_tokens} new ones "
                    f"do not fit into the models' context of {longest}"
                )
            if max(shown.token_ids) >= pair.verifier.vocabulary:
                raise ValueError(f"token id {max(shown.token_ids)} has no row in the verifier")
            rendered.append(shown)
        except ValueError as error:
            failures.append(Failure("render", prompt.prompt_id, error))
    return rendered, failures


def _run_stage(
    stage: Stage,
    config: StudyConfig,
    pair: Pair,
    rendered: Sequence[RenderedPrompt],
    run_dir: Path,
    store: Store,
    progress: Progress,
) -> list[Failure]:
    from specstudy.models.device import empty_cache

    started_s = time.monotonic()
    units = [unit for prompt in rendered for unit in stage.units(config, prompt)]
    common = _common_parts(stage, config, pair)
    results, failures, n_reused = [], [], 0
    with progress.stage(stage.name, len(units)) as advance:
        for unit in units:
            parts = {**common, "settings": dict(stage.settings(config, unit)), **_unit_parts(unit)}
            key = result_key(parts)
            stored = store.get(stage.name, key)
            if stored is None:
                try:
                    store.put(stage.name, key, parts, stage.measure(pair, config, unit))
                    stored = store.get(stage.name, key)
                except Exception as error:  # sorted at once: a bug is raised again
                    if not _is_of_the_prompt(error):
                        raise
                    # Its frames hold the tensors that the prompt filled the memory with.
                    failures.append(Failure(stage.name, unit.prompt.prompt_id, error.with_traceback(None)))
                empty_cache(pair.verifier.device)
            else:
                n_reused += 1
            if stored is not None:
                results.append(stored)
            advance(unit.prompt.prompt_id)
    consolidate(run_dir, stage.name, results)
    manifest.update(
        run_dir,
        "stages",
        {
            stage.name: {
                "n_done": len(results),
                "n_reused": n_reused,
                "n_failed": len(failures),
                "seconds": round(time.monotonic() - started_s, 1),
                "load_average": load_average(),
            }
        },
    )
    return failures


def _check(
    stage: Stage,
    check: Callable[[Pair, StudyConfig, Sequence[RenderedPrompt]], dict[str, Any]],
    config: StudyConfig,
    pair: Pair,
    rendered: Sequence[RenderedPrompt],
    run_dir: Path,
) -> None:
    """Check what a stage measured with, unless exactly this was checked before; a failure is said and marks the run."""
    settings = [dict(stage.settings(config, unit)) for unit in stage.units(config, rendered[0])]
    prompts = [prompt.token_ids for prompt in rendered]
    key = result_key({**_common_parts(stage, config, pair), "settings": settings, "prompts": prompts})
    outcome = manifest.read(run_dir).get("self_checks", {}).get(stage.name, {})
    if outcome.get("key") != key:
        try:
            outcome = {"key": key, **check(pair, config, rendered)}
        except Exception as error:  # sorted at once: a bug is raised again
            if not _is_of_the_prompt(error):
                raise
            outcome = {"passed": False, "error": " ".join(str(error).split())}
        manifest.update(run_dir, "self_checks", {stage.name: outcome})
    if not outcome["passed"]:
        print(
            f"SELF-CHECK FAILED in {stage.name}: do not trust this run's numbers; see self_checks in "
            f"{run_dir / 'manifest.json'}",
            file=sys.stderr,
        )


def _is_of_the_prompt(error: Exception) -> bool:
    """Whether this may be the fault of one prompt, so that the others go on: NaN, memory, an odd text."""
    from specstudy.models.device import is_out_of_memory

    return isinstance(error, FloatingPointError | ValueError) or is_out_of_memory(error)


def _common_parts(stage: Stage, config: StudyConfig, pair: Pair) -> dict[str, object]:
    """All that can change a stage's numbers, except what differs from unit to unit."""
    import torch
    import transformers

    return {
        "stage": stage.name,
        "verifier": pair.verifier.fingerprint,
        "verifier_config": _digest(pair.verifier.module.config.to_dict()),
        "draft": pair.draft.fingerprint,
        "draft_config": _digest(pair.draft.module.config.to_dict()),
        "eos_ids": list(pair.eos_ids),
        "device": str(pair.verifier.device),
        "dtype": str(pair.verifier.dtype),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "seed": config.seed,
        "schema_version": SCHEMA_VERSION,
        "code": stage.code,
    }


def _digest(settings: dict[str, Any]) -> str:
    """What a model's configuration says beyond its weights (rope, windows, scaling), as a hash."""
    told = {k: v for k, v in settings.items() if k not in ("_name_or_path", "transformers_version", "dtype")}
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()


def _unit_parts(unit: Unit) -> dict[str, object]:
    return {
        "prompt": asdict(unit.prompt),
        "token_ids": unit.rendered.token_ids,
        "structure": [(p.role, p.structural_role) for p in unit.rendered.positions],
        "rendered": [unit.rendered.text, *unit.rendered.notes],
        "repetition": unit.repetition,
    }


def _publish_versions(run_dir: Path, prompts: Sequence[Prompt]) -> None:
    """The `prompt_versions` table, empty where prompts have none."""
    rows: list[object] = [
        PromptVersion(
            prompt_id=prompt.prompt_id,
            category=prompt.category,
            original_id=prompt.version.original_id,
            kind=prompt.version.kind,
            dose=prompt.version.dose,
            control_id=prompt.version.control_id,
            hidden=prompt.version.hidden,
            hidden_from_both=prompt.version.hidden_from_both if prompt.version.hidden else None,
            temperature=prompt.version.temperature,
            draft_temperature=prompt.version.draft_temperature,
        )
        for prompt in prompts
        if prompt.version
    ]
    publish_table(run_dir, "prompt_versions", to_table("prompt_versions", rows))


def _publish_errors(run_dir: Path, failures: Sequence[Failure], stages: set[str]) -> None:
    """The `errors` table: failures of the stages that ran now, and what other stages left there before."""
    rows: list[object] = []
    if table_path(run_dir, "errors").exists():
        rows += [r for r in to_records("errors", read_table(run_dir, "errors")) if r.stage not in stages | {"render"}]
    rows += {(f.stage, f.prompt_id): f.row() for f in failures}.values()
    publish_table(run_dir, "errors", to_table("errors", rows))


def _report_failures(failures: Sequence[Failure], run_dir: Path) -> int:
    if not failures:
        return 0
    first = failures[0]
    print(
        f"{len(failures)} of the measurements failed, first {first.stage} of {first.prompt_id}: {first.row().message}; "
        f"all are in {table_path(run_dir, 'errors')}; the same command tries only these again",
        file=sys.stderr,
    )
    return 1
