"""manifest.json: all that it takes to understand a run and to do it again, written section by section as it goes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any

from specstudy.clock import load_average, now
from specstudy.errors import UserError
from specstudy.tables.environment import environment
from specstudy.tables.files import move_aside, write_atomically
from specstudy.tables.schema import SCHEMA_VERSION

SECTIONS: dict[str, str] = {
    "time": "start of the last command that measured anything, load_average then; end of the last command (ISO 8601 "
    "with zone; null until it is finished)",
    "stages": "per stage: n_done, n_reused, n_failed of the last command; seconds and load_average of the last one "
    "that measured anything",
    "self_checks": "per check: its outcome",
    "execution": "device, dtype, threads",
    "thread_trial": "threads (the choice), verifier_step_s and draft_step_s by number of threads, when and under which "
    "load; absent where there was nothing to choose",
    "models": "per role (verifier, draft): fingerprint, generation settings in force, a note on where it comes from, "
    "linear_layers (plain, or packed as this CPU multiplies them fastest), gguf (what such a file was read as)",
    "claims": "sha256 of the declared claims when the run was first measured, and when it was last answered",
    "prompts": "name, n_prompts, hash of the set",
    "seeds": "the seeds that results depend on",
    "code": "hashes of the measuring source files",
    "measured_with": "per stage: everything besides prompt and settings that its results are keyed by",
    "environment": "package versions, python, platform, git commit and whether dirty",
    "config": "the full configuration",
}


def start(run_dir: Path) -> dict[str, object]:
    """Notes that a command begins to work on the run, and the environment. The run is unfinished from here.

    Returns its start and the load, for `measuring`: what an earlier command measured was not measured now.
    """
    began: dict[str, object] = {"start": now(), "load_average": load_average()}
    update(run_dir, "time", {**began, **_read_or_begin(run_dir).get("time", {}), "end": None})
    update(run_dir, "environment", environment())
    return began


def measuring(run_dir: Path, began: Mapping[str, object]) -> None:
    """Notes that the command which `began` then measures something."""
    update(run_dir, "time", began)


def finish(run_dir: Path) -> None:
    """Notes that the run is complete."""
    update(run_dir, "time", {"end": now()})


def is_finished(manifest: Mapping[str, Any]) -> bool:
    """Whether the last command that worked on the run came to its end."""
    return bool(manifest.get("time", {}).get("end"))


def configuration(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The full configuration of the run. Raises UserError if the manifest does not say it."""
    if not manifest.get("config"):
        raise UserError("the run's manifest.json holds no configuration; run the study again")
    return dict(manifest["config"])


def failed_self_checks(manifest: Mapping[str, Any]) -> list[str]:
    """The stages whose check of the program by itself failed: their numbers are not to be trusted."""
    return [stage for stage, outcome in manifest.get("self_checks", {}).items() if not outcome["passed"]]


def update(run_dir: Path, section: str, content: Mapping[str, object]) -> None:
    """Sets entries of a section, keeping its others; the caller holds the run directory's lock.

    Raises ValueError for a section that SECTIONS does not name and for NaN or infinity, TypeError for what JSON does
    not know, UserError where it cannot be written. A damaged manifest is moved aside with a warning.
    """
    if section not in SECTIONS:
        raise ValueError(f"no section of the manifest is called {section!r}")
    manifest = _read_or_begin(run_dir)
    manifest[section] = {**manifest.get(section, {}), **content}
    ordered = {"schema_version": SCHEMA_VERSION} | {name: manifest[name] for name in SECTIONS if name in manifest}
    text = json.dumps(ordered, indent=2, ensure_ascii=False, allow_nan=False)
    # Names of files may hold bytes that are no text; they are escaped rather than lost.
    write_atomically(_path(run_dir), f"{text}\n".encode(errors="backslashreplace"))


def read(run_dir: Path) -> dict[str, Any]:
    """The manifest of a run. Raises UserError if there is none or it is damaged."""
    try:
        return _parse(_path(run_dir))
    except FileNotFoundError:
        raise UserError(f"{run_dir} has no manifest.json; `make study` writes it") from None
    except (OSError, ValueError) as fault:
        raise UserError(f"cannot read {_path(run_dir)}: {fault}; run the study again") from fault


def _path(run_dir: Path) -> Path:
    return run_dir / "manifest.json"


def _parse(path: Path) -> dict[str, Any]:
    manifest = json.loads(path.read_text(encoding="utf-8"))
    sections = manifest.items() if isinstance(manifest, dict) else [("", None)]
    if not all(isinstance(content, dict) for name, content in sections if name != "schema_version"):
        raise ValueError("it is no manifest")
    for place, value, expected in _entries(manifest):
        if not isinstance(value, expected):
            raise ValueError(f"it is no manifest: {place} is {json.dumps(value)[:40]}")
    return dict(manifest)


def _entries(manifest: Mapping[str, Any]) -> Iterator[tuple[str, object, type | UnionType]]:
    """The entries that are read back one by one: where they stand, what they are, what they should be."""
    for section in ("stages", "self_checks", "models", "measured_with"):
        yield from ((f"{section}.{name}", entry, dict) for name, entry in manifest.get(section, {}).items())
    for stage, outcome in manifest.get("self_checks", {}).items():
        yield f"self_checks.{stage}.passed", outcome.get("passed"), bool
    for role, model in manifest.get("models", {}).items():
        yield f"models.{role}.distillation", model.get("distillation"), dict | None
    yield from ((f"time.{name}", manifest.get("time", {}).get(name), str | None) for name in ("start", "end"))
    groups = ("models", "prompts", "decode")
    yield from ((f"config.{name}", manifest.get("config", {}).get(name, {}), dict) for name in groups)


def _read_or_begin(run_dir: Path) -> dict[str, Any]:
    try:
        return _parse(_path(run_dir))
    except FileNotFoundError:
        return {}
    except (ValueError, IsADirectoryError) as fault:
        move_aside(_path(run_dir), fault)
        return {}
    except OSError as fault:
        raise UserError(f"cannot read {_path(run_dir)}: {fault.strerror or fault}") from fault
