"""How the units of a stage are measured, here or by a pool of workers, and how what is measured becomes its tables."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from specstudy.clock import load_average
from specstudy.config import StudyConfig
from specstudy.prompts import RenderedPrompt
from specstudy.records import STAGE_TABLES, ErrorRow
from specstudy.running.progress import Progress
from specstudy.running.ray_pool import ray_executor
from specstudy.running.stage import Stage, shared_parts
from specstudy.running.tasks import Execute, Task, measure_task, tasks_of
from specstudy.tables import manifest
from specstudy.tables.run_directory import consolidate
from specstudy.tables.store import Store, result_key

if TYPE_CHECKING:
    from specstudy.models.load import Pair


def executor(
    config: StudyConfig, pair: Pair, store: Store, load_pair: Callable[[], Pair]
) -> AbstractContextManager[Execute]:
    """The way to execute that the configuration names; `load_pair` is how a worker elsewhere comes by the models."""
    if config.execution.strategy == "ray":
        return ray_executor(config, pair, store, load_pair)
    return _local_executor(config, pair, store)


@contextmanager
def _local_executor(config: StudyConfig, pair: Pair, store: Store) -> Iterator[Execute]:
    """One task after the other, with the models that are loaded here."""
    yield lambda stage, tasks: ((task, measure_task(stage, config, pair, store, task)) for task in tasks)


def run_stage(
    stage: Stage,
    config: StudyConfig,
    pair: Pair,
    prompts: Sequence[RenderedPrompt],
    run_dir: Path,
    store: Store,
    execute: Execute,
    progress: Progress,
    began: Mapping[str, object],
) -> list[ErrorRow]:
    """Measure what the store does not have, and publish the stage's tables. `began`: of `manifest.start`."""
    started_s = time.monotonic()
    shared = shared_parts(stage, config, pair)
    tasks = tasks_of(stage, config, shared, prompts)
    failed: dict[str, ErrorRow] = {}
    with progress.stage(stage.name, len(tasks)) as advance:
        missing = []
        for task in tasks:
            if _is_there(store, stage, task, config.execution.remeasure):
                advance(task.unit.prompt.prompt_id)
            else:
                missing.append(task)
        _say_what_is_stale(stage, missing, shared, run_dir, store)
        if missing:
            manifest.measuring(run_dir, began)
        for task, failure in execute(stage, missing):
            if failure:
                failed[task.key] = failure
            advance(task.unit.prompt.prompt_id)
    done = sorted((task for task in tasks if task.key not in failed), key=lambda task: task.unit.order)
    consolidate(run_dir, stage.name, (stage.finish(config, store.stored(stage.name, task.key)) for task in done))
    counts = {"n_done": len(done), "n_reused": len(tasks) - len(missing), "n_failed": len(failed)}
    when = {"seconds": round(time.monotonic() - started_s, 1), "load_average": load_average()}
    before = manifest.read(run_dir).get("stages", {}).get(stage.name, {})
    manifest.update(run_dir, "stages", {stage.name: {**before, **counts, **(when if missing else {})}})
    return [failed[task.key] for task in tasks if task.key in failed]


def _is_there(store: Store, stage: Stage, task: Task, remeasure: str) -> bool:
    """Whether the store has a result that need not be measured, nor its timings be taken again."""
    if remeasure == "none" or "spec_runs" not in STAGE_TABLES[stage.name]:
        return store.has(stage.name, task.key)
    # Imported here: pandas takes a moment that few runs need.
    from specstudy.analysis.machine import disturbed
    from specstudy.tables.run import to_frame

    result = store.get(stage.name, task.key) if remeasure == "busy" else None
    return result is not None and not disturbed(to_frame(result["spec_runs"])).any()


def _say_what_is_stale(
    stage: Stage, missing: Sequence[Task], shared: dict[str, object], run_dir: Path, store: Store
) -> None:
    """One line if results of this very run are there, but of other code, models or versions: how many, and which."""
    before = manifest.read(run_dir).get("measured_with", {}).get(stage.name, shared)
    manifest.update(run_dir, "measured_with", {stage.name: shared})
    changed = [name for name in shared if before.get(name) != shared[name]]
    if not changed:
        return
    n_stale = sum(store.exists(stage.name, result_key({**before, **task.parts_of_its_own})) for task in missing)
    if n_stale:
        print(
            f"{stage.name}: {n_stale} results of this run are measured again, because these changed since: "
            f"{', '.join(changed)}",
            file=sys.stderr,
        )
