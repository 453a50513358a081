"""Units measured by workers of a Ray cluster, each with the pair loaded, handed out as they come.

Results reach the tables by way of the store alone, so it makes no difference who measured what, and a worker that dies
loses nothing but the unit it was at. A worker refuses to measure with anything that would give a result another key:
other code, versions, weights, device or threads than those of the machine that the command was given on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specstudy.config import StudyConfig
from specstudy.errors import UserError
from specstudy.records import ErrorRow
from specstudy.running.stage import Stage, shared_parts
from specstudy.running.tasks import Execute, Task, measure_task
from specstudy.tables.store import Store

if TYPE_CHECKING:
    from specstudy.models.load import Pair

ATTEMPTS = 3
"""Workers that may die of one unit before it counts as failed."""
OBJECT_STORE_BYTES = 2**27
"""Ray's own memory for objects: only tasks and failures pass through it, results go to the store."""


class Worker:
    """What runs in a process of the cluster."""

    def __init__(self, config: StudyConfig, load_pair: Callable[[], Pair], store_place: Path | str) -> None:
        self._config, self._pair = config, load_pair()
        self._store = Store(store_place)
        self._shared: dict[str, dict[str, object]] = {}

    def measure(self, stage: Stage, task: Task) -> ErrorRow | None:
        """Measure and store one unit. Raises UserError where the result would not be the one asked for."""
        if stage.name not in self._shared:  # as its code was when this process read it
            self._shared[stage.name] = shared_parts(stage, self._config, self._pair)
        here = self._shared[stage.name]
        if differing := [name for name in here if here[name] != task.parts[name]]:
            raise UserError(
                f"a worker on {os.uname().nodename} would measure {stage.name} with another "
                f"{', '.join(differing)}; give all machines the same"
            )
        return measure_task(stage, self._config, self._pair, self._store, task)


@contextmanager
def ray_executor(config: StudyConfig, pair: Pair, store: Store, load_pair: Callable[[], Pair]) -> Iterator[Execute]:
    """A pool of workers on the cluster that the configuration names, or on one that is started here for this command.

    Raises UserError if Ray is not installed or the cluster cannot be reached.
    """
    try:
        import ray
    except ImportError:
        raise UserError("execution=ray needs Ray: .venv/bin/python -m pip install -c constraints.txt ray") from None

    started_here = not ray.is_initialized()
    if started_here:
        connect(ray, config)
    options: dict[str, Any] = {"num_cpus": config.execution.threads or 1}
    if pair.verifier.device.type == "cuda":
        options["num_gpus"] = 1
    worker_class = ray.remote(**options)(Worker)

    def new_worker() -> Any:
        return worker_class.remote(config, load_pair, store.root)

    workers = [new_worker() for _ in range(config.execution.workers)]
    try:
        yield lambda stage, tasks: _handed_out(ray, workers, new_worker, stage, tasks)
    finally:
        for worker in workers:
            ray.kill(worker)
        if started_here:
            ray.shutdown()


def connect(ray: Any, config: StudyConfig) -> None:
    """Join the cluster that the configuration names, or start one here. Raises UserError if there is none."""
    execution = config.execution
    common: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    try:
        if execution.address == "local":
            n_cpus = (execution.threads or 1) * execution.workers
            ray.init(
                address="local",
                num_cpus=n_cpus,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                **common,
            )
        else:
            ray.init(address=execution.address, **common)
    except (ConnectionError, RuntimeError, ValueError) as error:
        line = " ".join(str(error).split())[:200]
        raise UserError(f"execution.address={execution.address}: no Ray cluster there ({line})") from error


def _handed_out(
    ray: Any, workers: list[Any], new_worker: Callable[[], Any], stage: Stage, tasks: Sequence[Task]
) -> Iterator[tuple[Task, ErrorRow | None]]:
    """Each task goes to the worker that is free first; one whose worker died goes to another."""
    waiting, attempts = list(reversed(tasks)), dict.fromkeys((task.key for task in tasks), 0)
    stage_there = ray.put(stage)
    running: dict[Any, tuple[int, Task]] = {}
    idle = list(range(len(workers)))
    while waiting or running:
        while waiting and idle:
            place, task = idle.pop(), waiting.pop()
            running[workers[place].measure.remote(stage_there, task)] = (place, task)
        done, _ = ray.wait(list(running), num_returns=1)
        place, task = running.pop(done[0])
        idle.append(place)
        try:
            yield task, ray.get(done[0])
        except ray.exceptions.RayActorError as error:
            workers[place] = new_worker()
            attempts[task.key] += 1
            name = task.unit.prompt.prompt_id
            if attempts[task.key] == ATTEMPTS:
                died = f"{ATTEMPTS} workers died of it: {error}"
                yield task, ErrorRow(stage=stage.name, prompt_id=name, kind="WorkerDied", message=died)
            else:
                print(f"{stage.name} of {name}: its worker died; another one tries", file=sys.stderr)
                waiting.append(task)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
