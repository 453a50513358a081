"""A run done again from its manifest, in another directory with an empty store: equal, or where it first differs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specstudy.config import from_mapping
from specstudy.errors import UserError, no_such
from specstudy.running.compare import find_run
from specstudy.running.stages.decode import DECODE
from specstudy.running.stages.prefill import PREFILL
from specstudy.running.stages.retention import RETENTION
from specstudy.running.stages.routing import ROUTING
from specstudy.running.stages.speculate import SPECULATE
from specstudy.running.workflow import run as run_stages
from specstudy.running.workflow import run_path_of
from specstudy.tables import manifest
from specstudy.tables.differences import differences
from specstudy.tables.equality import first_difference
from specstudy.tables.files import cannot_write
from specstudy.tables.run import open_run

STAGES = {stage.name: stage for stage in (PREFILL, DECODE, SPECULATE, ROUTING, RETENTION)}
SAID = ("schema_version", "environment", "execution", "models", "prompts", "seeds", "code")
"""Sections of the manifest in which a difference can explain one of results."""


def reproduce(run: str) -> int:
    """`run` is a run directory, or the name of one in outputs/. 0: equal; 1: not."""
    return _reproduce(find_run("run", run).resolve())


def _reproduce(path: Path) -> int:
    original = open_run(path)
    names = original.manifest.get("stages", {})
    for name in names:
        if name not in STAGES:
            raise no_such("stage", name, list(STAGES), shown=f"{path}: {name}")
    stages = [STAGES[name] for name in names]
    if not stages or not manifest.is_finished(original.manifest):
        raise UserError(f"{path} is not finished; the command that made it goes on from there")
    config = from_mapping(manifest.configuration(original.manifest))
    config = dataclasses.replace(
        config,
        output_dir=str(_new_directory(path)),
        # A trial might choose other threads here, and numbers may differ by rounding with them.
        execution=dataclasses.replace(
            config.execution, store="store", remeasure="none", threads=original.manifest["execution"]["threads"]
        ),
    )
    print(f"running {path} again, {', '.join(stage.name for stage in stages)}, in {config.output_dir}", flush=True)
    status = run_stages(config, stages, before=lambda again: _say_what_differs(original.manifest, manifest.read(again)))
    if status:
        return status
    found = first_difference(path, run_path_of(config))
    if found:
        print(f"differs (first: that run, second: this one) in {found}")
        return 1
    print("equal: every measured table, bit for bit, columns of a clock excepted")
    return 0


def _new_directory(path: Path) -> Path:
    """One that has nothing in it, beside the run, so that nothing is taken from an earlier time."""
    parent = path.parent / "reproductions"
    n_before = len(list(parent.glob(f"{path.name}-*")))
    directory = parent / f"{path.name}-{n_before + 1}"
    try:
        directory.mkdir(parents=True)
    except OSError as fault:
        raise cannot_write(directory, fault) from fault
    return directory


def _say_what_differs(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """A line for everything about machine, versions, models and code that is not as it was, before anything is run."""
    kept = [{name: written[name] for name in SAID if name in written} for written in (then, now)]
    for key, (before, after) in differences(*kept).items():
        print(f"not as then: {key} was {before!r}, is {after!r}", flush=True)
