"""Figures, and such of several sizes, each measured by a process of its own, so that one's memory is not another's."""

from __future__ import annotations

import resource
import subprocess
import sys


def figure(name: str, value: float) -> None:
    """One result."""
    print(f"figure {name} {value:.3f}", flush=True)


def peak_mib() -> float:
    """Most memory that this process has had so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def measured(script: str, option: str, n: int) -> dict[str, float]:
    """What the script prints for size n, given as `option`: its figures by their names without the size."""
    child = subprocess.run([sys.executable, script, option, str(n)], check=True, stdout=subprocess.PIPE, text=True)
    print(child.stdout, end="", flush=True)
    lines = [line.split() for line in child.stdout.splitlines()]
    return {name.replace(f"_{n}", ""): float(value) for _, name, value in lines}
