"""Commands of the project run as processes on the shipped models: started, finished, stopped in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from specstudy.config import PROJECT_ROOT

N_NEW_TOKENS = 8
# Float32, so that numbers can be compared with those of other ways to compute them; greedy, so that texts can.
STUDY_WORDS = (
    "prompts.categories=[factual,code]",
    "prompts.per_category=1",
    f"decode.max_new_tokens={N_NEW_TOKENS}",
    "decode.temperature=0",
    "spec.gamma=3",
    "analysis.bootstrap_samples=100",
    "execution.threads=1",
    "execution.dtype=float32",
)


def start(command: str, *words: str) -> subprocess.Popen[str]:
    """A command of `pipelines/`, started."""
    return subprocess.Popen(
        [sys.executable, str(PROJECT_ROOT / "pipelines" / f"{command}.py"), *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@dataclass(frozen=True)
class Finished:
    """A command that ended; `err` without the line on how long it would take, which depends on the machine."""

    status: int
    out: str
    err: str


def finish(process: subprocess.Popen[str], timeout_s: float = 600) -> Finished:
    """Wait for a command."""
    out, err = process.communicate(timeout=timeout_s)
    told = [line for line in err.splitlines(keepends=True) if not line.startswith("measuring takes about")]
    return Finished(process.returncode, out, "".join(told))


def run(command: str, *words: str) -> Finished:
    """Run a command to its end."""
    return finish(start(command, *words))


def results(output_dir: Path) -> list[Path]:
    """Finished results in the store."""
    return list((output_dir / "store").rglob("*.parquet"))


def stop_after(process: subprocess.Popen[str], n_results: int, output_dir: Path, how: int) -> Finished:
    """Send a signal as soon as the store holds a number of results."""
    deadline_s = time.monotonic() + 300
    while process.poll() is None and len(results(output_dir)) < n_results and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert process.poll() is None, "it ended before it could be stopped"
    process.send_signal(how)
    return finish(process)
