"""How stages run: models loaded once, each unit of work looked up in the store or measured, tables published whole."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specstudy.config import StudyConfig, local_path, to_mapping
from specstudy.prompts import (
    Columns,
    Position,
    Prompt,
    RenderedPrompt,
    read_prompt_file,
    render,
    select,
    use_template,
)
from specstudy.prompts.poisoned import check_contexts, read_contexts
from specstudy.prompts.prompt import Version
from specstudy.prompts.versions import at_temperatures, poisoned, with_hidden_positions, with_lowered_keys
from specstudy.records import ErrorRow, PromptAsked, PromptVersion
from specstudy.running.description import describe_run
from specstudy.running.duration import announce
from specstudy.running.execution import executor, run_stage
from specstudy.running.progress import Progress
from specstudy.running.stage import Stage, shared_parts
from specstudy.running.tasks import failure, is_of_the_prompt
from specstudy.running.threads import set_threads
from specstudy.tables import manifest
from specstudy.tables.run_directory import publish_table, read_table, run_directory, run_path, table_path
from specstudy.tables.schema import to_records, to_table
from specstudy.tables.store import Store, result_key

if TYPE_CHECKING:
    from specstudy.models.load import Pair, PairSources


class PromptTooLongError(ValueError):
    """Prompt and answer do not fit into the model's context."""


def without_result_neutral_settings(config: StudyConfig) -> dict[str, object]:
    """The configuration less what changes no result: where it is written, who works on it, how it is shown."""
    mapping = to_mapping(config)
    del mapping["output_dir"]
    for name in ("name", "strategy", "address", "workers", "store", "remeasure", "progress"):
        del mapping["execution"][name]
    return mapping


def run_path_of(config: StudyConfig) -> Path:
    """Where the run of this configuration lies."""
    return run_path(
        local_path(config.output_dir), config.models.name, config.prompts.name, without_result_neutral_settings(config)
    )


def run(
    config: StudyConfig,
    stages: Sequence[Stage],
    after: Callable[[Path, StudyConfig], None] | None = None,
    before: Callable[[Path], None] | None = None,
) -> int:
    """Run stages over the configured prompts, then `after` on the finished tables. 0, or 1 if prompts failed or the
    run's self-check did.

    `before` is called with the run directory when the manifest says with what will be measured.
    """
    output_dir = local_path(config.output_dir)
    # Whatever can be refused is refused before there is a run directory.
    prompts, notes = chosen_prompts(config)
    check_versions(config, prompts)
    load = find_models(config) if stages else None
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    with run_directory(
        output_dir,
        models=config.models.name,
        prompts=config.prompts.name,
        config=without_result_neutral_settings(config),
    ) as run_dir:
        began = manifest.start(run_dir)
        failures: list[ErrorRow] = []
        if load:
            store = open_store(config)
            failures = _measure_stages(config, stages, prompts, load(), run_dir, store, began, before)
        if after:
            after(run_dir, config)
        manifest.finish(run_dir)
    return max(_report_failures(failures, run_dir), _report_failed_checks(run_dir))


def open_store(config: StudyConfig) -> Store:
    """Where the results are: a directory below output_dir, another one, or a URI."""
    place = config.execution.store
    return Store(place if "://" in place else local_path(config.output_dir) / place)


def chosen_prompts(config: StudyConfig) -> tuple[list[Prompt], list[str]]:
    """The prompts that the configuration names, and a line on each thing in their file that was left out."""
    prompts, notes = _all_prompts(config)
    return select(prompts, config.prompts.categories, config.prompts.per_category), notes


def _all_prompts(config: StudyConfig) -> tuple[list[Prompt], list[str]]:
    p = config.prompts
    columns = Columns(
        text=p.text_column,
        prompt_id=p.id_column,
        category=p.category_column,
        messages=p.messages_column,
        context=p.context_column,
        group=p.group_column,
    )
    return read_prompt_file(local_path(p.path), columns)


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

        category = {prompt.prompt_id: prompt.category for prompt in _all_prompts(config)[0]}
        return poisoned(prompts, read_contexts(local_path(p.contexts)), category, p.doses, config.seed, count)
    if p.versions in ("hidden", "lowered"):
        from specstudy.models.lowered_scores import refuse_unless_scores_can_be_lowered
        from specstudy.models.without_position import refuse_unless_maskable

        for model in (pair.verifier, pair.draft):
            (refuse_unless_maskable if p.versions == "hidden" else refuse_unless_scores_can_be_lowered)(model.module)
        return with_hidden_positions(prompts) if p.versions == "hidden" else with_lowered_keys(prompts, p.lowered_by)
    if p.versions == "temperatures":
        return at_temperatures(prompts, p.temperatures, config.spec.primary.temperature)
    return prompts


def find_models(config: StudyConfig) -> Callable[[], Pair]:
    """What loads the configured pair on its device. Raises UserError for all that small files can tell."""
    import torch
    import transformers

    from specstudy.models.device import choose_device, choose_dtype, usable_cores
    from specstudy.models.load import find_pair, load_found_pair, refuse_unless_weights_fit

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(config.execution.threads or usable_cores())
    device = choose_device(config.execution.device)
    dtype = choose_dtype(config.execution.dtype, device)
    found = find_pair(config.models.verifier, config.models.draft, config.models.trust_remote_code)
    check_proposers(config, found)
    choose_template(config, found)
    refuse_unless_weights_fit(found, device, dtype)
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    return lambda: load_found_pair(found, device, dtype)


def check_proposers(config: StudyConfig, found: PairSources) -> None:
    """Raise UserError for a proposer that this pair cannot have, as far as small files tell."""
    if "early_exit" in config.spec.proposer:
        from specstudy.models.early_exit import refuse_unless_it_has_more_layers

        refuse_unless_it_has_more_layers(found.verifier, config.spec.exit_layers)


def choose_template(config: StudyConfig, found: PairSources) -> None:
    """Leave the pair's tokenizer with the chat template of the configuration. Raises UserError for an unfit one."""
    model = f"models.verifier={config.models.verifier}"
    use_template(found.tokenizer, model, config.prompts.template, config.prompts.thinking)


def _measure_stages(
    config: StudyConfig,
    stages: Sequence[Stage],
    prompts: Sequence[Prompt],
    pair: Pair,
    run_dir: Path,
    store: Store,
    began: Mapping[str, object],
    before: Callable[[Path], None] | None,
) -> list[ErrorRow]:
    import torch

    from specstudy.measure.finite import refuse_unless_finite

    refuse_unless_finite(pair)
    for stage in stages:
        stage.refuse(pair)
    trial = set_threads(config, pair, store)
    prompts = prompt_versions(config, prompts, pair)
    describe_run(config, pair, {stage.name: stage.code for stage in stages}, prompts, run_dir)
    if trial:
        manifest.update(run_dir, "thread_trial", trial)
    _publish_prompts(run_dir, prompts)
    rendered, failures = render_all(prompts, pair, config)
    if rendered:
        notes = Counter(note for prompt in rendered for note in prompt.notes)
        described = {"generation_prompt": rendered[0].generation_prompt, "rendering_notes": dict(sorted(notes.items()))}
        manifest.update(run_dir, "prompts", described)
    if before:
        before(run_dir)
    announce(stages, config, pair, rendered, store)
    as_here = replace(config, execution=replace(config.execution, threads=torch.get_num_threads()))
    with (
        Progress(config.execution.progress) as progress,
        executor(config, pair, store, lambda: find_models(as_here)()) as execute,
    ):
        for stage in stages:
            failures += run_stage(stage, config, pair, rendered, run_dir, store, execute, progress, began)
    for stage in stages:
        if stage.check and rendered:
            _check(stage, stage.check, config, pair, rendered, run_dir)
    _publish_errors(run_dir, failures, {stage.name for stage in stages})
    return failures


def render_all(
    prompts: Sequence[Prompt], pair: Pair, config: StudyConfig
) -> tuple[list[RenderedPrompt], list[ErrorRow]]:
    """The prompts as the models see them, and a row for each that they cannot see."""
    rendered, failures = [], []
    alike: dict[Position, Position] = {}  # very many prompts have few positions that differ
    longest = pair.context_length
    for prompt in prompts:
        try:
            shown = render(prompt, pair.tokenizer, config.prompts.thinking)
            needed = len(shown.positions) + config.decode.max_new_tokens
            if longest is not None and needed > longest:
                raise PromptTooLongError(
                    f"{len(shown.positions)} prompt tokens and {config.decode.max_new_tokens} new ones "
                    f"do not fit into the models' context of {longest}{_why(longest, pair)}"
                )
            if max(shown.token_ids) >= pair.verifier.vocabulary:
                raise ValueError(f"token id {max(shown.token_ids)} has no row in the verifier")
            positions = tuple(alike.setdefault(position, position) for position in shown.positions)
            rendered.append(replace(shown, positions=positions))
        except ValueError as error:
            failures.append(failure("render", prompt.prompt_id, error))
    return rendered, failures


def _why(context: int, pair: Pair) -> str:
    from specstudy.models.rotary import ENDS_THERE, constant_frequencies

    limits = [constant_frequencies(model.module.config) for model in (pair.verifier, pair.draft)]
    return f" ({ENDS_THERE})" if context in limits else ""


def _check(
    stage: Stage,
    check: Callable[[Pair, StudyConfig, Sequence[RenderedPrompt]], dict[str, Any]],
    config: StudyConfig,
    pair: Pair,
    rendered: Sequence[RenderedPrompt],
    run_dir: Path,
) -> None:
    """Check what a stage measured with, unless exactly this was checked before; a failure marks the run."""
    settings = [dict(stage.settings(config, unit)) for unit in stage.units(config, rendered[0])]
    prompts = [prompt.token_ids for prompt in rendered]
    key = result_key({**shared_parts(stage, config, pair), "settings": settings, "prompts": prompts})
    outcome = manifest.read(run_dir).get("self_checks", {}).get(stage.name, {})
    if outcome.get("key") != key:
        try:
            outcome = {"key": key, **check(pair, config, rendered)}
        except Exception as error:  # sorted at once: a bug is raised again
            if not is_of_the_prompt(error):
                raise
            outcome = {"passed": False, "error": " ".join(str(error).split())}
        manifest.update(run_dir, "self_checks", {stage.name: outcome})


def _publish_prompts(run_dir: Path, prompts: Sequence[Prompt]) -> None:
    """The tables `prompts` and `prompt_versions`, the latter empty where prompts have none."""
    asked: list[object] = [PromptAsked(prompt_id=p.prompt_id, category=p.category, group=p.group) for p in prompts]
    publish_table(run_dir, "prompts", to_table("prompts", asked))
    rows: list[object] = [
        PromptVersion(prompt_id=prompt.prompt_id, category=prompt.category, **_told_of(prompt.version))
        for prompt in prompts
        if prompt.version
    ]
    publish_table(run_dir, "prompt_versions", to_table("prompt_versions", rows))


def _told_of(version: Version) -> dict[str, Any]:
    """A version's own columns."""
    hidden = {} if version.hidden else {"hidden_from_both": None}
    return asdict(version) | hidden | ({} if version.lowered else {"lowered_in_both": None})


def _publish_errors(run_dir: Path, failures: Sequence[ErrorRow], stages: set[str]) -> None:
    """The `errors` table: failures of the stages that ran now, and what other stages left there before."""
    rows: list[object] = []
    if table_path(run_dir, "errors").exists():
        rows += [r for r in to_records("errors", read_table(run_dir, "errors")) if r.stage not in stages | {"render"}]
    rows += {(f.stage, f.prompt_id): f for f in failures}.values()
    publish_table(run_dir, "errors", to_table("errors", rows))


def _report_failed_checks(run_dir: Path) -> int:
    """1 and a line for each stage whose self-check failed, now or when it was measured; else 0."""
    failed = manifest.failed_self_checks(manifest.read(run_dir))
    for name in failed:
        print(
            f"SELF-CHECK FAILED in {name}: do not trust this run's numbers; see self_checks in "
            f"{run_dir / 'manifest.json'}",
            file=sys.stderr,
        )
    return 1 if failed else 0


def _report_failures(failures: Sequence[ErrorRow], run_dir: Path) -> int:
    if not failures:
        return 0
    first = failures[0]
    print(
        f"{len(failures)} of the measurements failed, first {first.stage} of {first.prompt_id}: {first.message}; "
        f"all are in {table_path(run_dir, 'errors')}; the same command tries only these again",
        file=sys.stderr,
    )
    return 1
