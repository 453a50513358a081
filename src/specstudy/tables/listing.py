"""What runs an output directory holds, how far each is, and how its configuration differs from another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specstudy.errors import UserError
from specstudy.tables import manifest
from specstudy.tables.differences import differences, flatten
from specstudy.tables.run_directory import read_config


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """A run directory in short; what is not known is None or empty."""

    name: str
    state: str  # finished, not finished, or what is wrong with the directory
    started: str | None = None  # ISO 8601 with zone
    n_prompts: int | None = None
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # as in the manifest
    failed_checks: Sequence[str] = ()  # stages whose self-check failed
    differing: Mapping[str, tuple[object, object]] = field(default_factory=dict)  # dotted key: (here, there)


def list_runs(output_dir: Path, compared_with: Mapping[str, object]) -> list[RunSummary]:
    """The runs in a directory, the one started last first, those of unknown time at the end.

    Raises UserError if it is no directory; one that does not exist yet holds no runs.
    """
    if not output_dir.exists():
        return []
    if not output_dir.is_dir():
        raise UserError(f"{output_dir} is not a directory; name one with output_dir=...")
    run_dirs = [path.parent for path in sorted(output_dir.glob("*/config.yaml")) if not path.parent.is_symlink()]
    runs = [_summary(run_dir, compared_with) for run_dir in run_dirs]
    return sorted(runs, key=lambda run: run.started or "", reverse=True)


def _summary(run_dir: Path, compared_with: Mapping[str, object]) -> RunSummary:
    try:
        config = read_config(run_dir)
        written = manifest.read(run_dir) if (run_dir / "manifest.json").exists() else {}
    except UserError as fault:
        return RunSummary(name=run_dir.name, state=str(fault))
    # A run keeps only what changes its results, so a key that it lacks is no difference.
    kept = flatten(config)
    differing = {key: pair for key, pair in differences(config, compared_with).items() if key in kept}
    return RunSummary(
        name=run_dir.name,
        state="finished" if manifest.is_finished(written) else "not finished",
        started=written.get("time", {}).get("start"),
        n_prompts=written.get("prompts", {}).get("n_prompts"),
        stages=written.get("stages", {}),
        failed_checks=manifest.failed_self_checks(written),
        differing=differing,
    )
