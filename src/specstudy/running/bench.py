"""Runs the scripts of `benchmarks/`, or the one named; they print lines `figure NAME VALUE`, or a table."""

from __future__ import annotations

import subprocess
import sys

from specstudy.config import PROJECT_ROOT
from specstudy.errors import UserError, no_such


def bench(name: str = "") -> int:
    """Run one script, or all in the order of their names. 1 if one of them failed."""
    scripts = {file.stem: file for file in sorted((PROJECT_ROOT / "benchmarks").glob("[!_]*.py"))}
    if not scripts:
        raise UserError(f"there are no benchmarks in {PROJECT_ROOT / 'benchmarks'}")
    if name and name not in scripts:
        raise no_such("benchmark", name, list(scripts))
    chosen = [scripts[name]] if name else list(scripts.values())
    statuses = [subprocess.run([sys.executable, str(script)], check=False).returncode for script in chosen]
    return int(any(statuses))
