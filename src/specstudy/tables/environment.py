"""What a run was computed with: package versions, Python, platform, state of the source tree, time and load."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = (
    "specstudy",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "gguf",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "statsmodels",
    "matplotlib",
    "hydra-core",
    "omegaconf",
)
_SOURCE_FILE = Path(__file__).resolve()


def environment() -> dict[str, object]:
    """The manifest's section `environment`: packages (those installed), python, platform, git."""
    return {
        "packages": package_versions(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "git": git_state(),
    }


def package_versions() -> dict[str, str]:
    """Version by name of the packages that results can depend on; those not installed are left out."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def git_state(source_file: Path = _SOURCE_FILE) -> dict[str, object] | None:
    """Commit, and whether anything differs from it; None if the source is not under git's control."""
    # An installed copy may lie inside somebody else's repository: only one that tracks the file says what it is.
    if _git(source_file.parent, "ls-files", "--error-unmatch", source_file.name) is None:
        return None
    commit = _git(source_file.parent, "rev-parse", "HEAD")
    changes = _git(source_file.parent, "status", "--porcelain")
    return None if commit is None or changes is None else {"commit": commit, "dirty": bool(changes)}


def now() -> str:
    """The time in ISO 8601 with its zone, to the second."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def load_average() -> list[float] | None:
    """Processes wanting the CPU, mean over 1, 5 and 15 minutes; None where the system does not say."""
    try:
        return [round(value, 2) for value in os.getloadavg()]
    except OSError:
        return None


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *arguments], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
