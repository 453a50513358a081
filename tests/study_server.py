"""Studies of tiny models, each in a process of its own that something can happen to at an exact moment.

Run as a script it reads one request a line, `[output_dir, moment, disaster, answered]`, forks, and answers with
`[status, stderr, moments]`: how the study ended, what it said, and how often each kind of moment came. It forks rather
than starts anew, so that torch is imported once. The product knows nothing of moments: they are calls that it makes.
"""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Moment = tuple[str, int]
"""A kind of moment, and how many of the kind come before it."""

IN_A_FILE = ("write", "sync", "rename")
"""Moments between opening a file and its rename: half of it written, all of it written, synced."""
KINDS = ("make directory", "open", *IN_A_FILE, "renamed", "sync directory", "measure")
FIGURE = "by_category"
DISASTERS = ("kill", "ENOSPC", "EROFS", "EIO")
"""SIGKILL at the moment; or every call of the kind fails from then on."""


@dataclass(frozen=True)
class Ended:
    """How a study ended."""

    status: int
    said: str
    moments: Counter[str]


class StudyServer:
    """The script below, running. Close it at the end."""

    def __init__(self) -> None:
        places = [str(Path(__file__).parent), *sys.path]
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, places))},
        )

    def run(
        self,
        output_dir: Path,
        moment: Moment = ("measure", sys.maxsize),
        disaster: str = "kill",
        answered: bool = False,
    ) -> Ended:
        """A study in `output_dir`, until it ends; `answered` ones are analysed too, with one figure."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([str(output_dir), moment, disaster, answered]), file=self._process.stdin, flush=True)
        status, said, moments = json.loads(self._process.stdout.readline())
        return Ended(status, said, Counter(moments))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Disaster:
    """Counts moments and strikes at one of them. `install` puts it into this process for good."""

    def __init__(self, moment: Moment, name: str) -> None:
        self.kind, self.n_before = moment
        self.name = name
        self.moments: Counter[str] = Counter()

    def comes(self, kind: str) -> None:
        """A moment of this kind is here."""
        n = self.moments[kind]
        self.moments[kind] += 1
        if kind != self.kind or n < self.n_before:
            return
        if self.name == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(getattr(errno, self.name), os.strerror(getattr(errno, self.name)))

    def install(self) -> None:
        disaster, fsync, replace, mkdir, open_path = self, os.fsync, os.replace, os.mkdir, Path.open

        class HalfWritten(io.BufferedWriter):
            def write(self, content: Any, /) -> int:
                half = len(memoryview(content).cast("B")) // 2
                super().write(memoryview(content).cast("B")[:half])
                self.flush()
                disaster.comes("write")
                return half + super().write(memoryview(content).cast("B")[half:])

        def watched_open(path: Path, mode: str = "r", *arguments: Any, **named: Any) -> Any:
            if mode != "xb":
                return open_path(path, mode, *arguments, **named)
            disaster.comes("open")
            return HalfWritten(io.FileIO(path, mode))

        def watched_fsync(descriptor: int) -> None:
            disaster.comes("sync directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync")
            fsync(descriptor)

        def watched_replace(*arguments: Any, **named: Any) -> None:
            disaster.comes("rename")
            replace(*arguments, **named)
            disaster.comes("renamed")

        def watched_mkdir(*arguments: Any, **named: Any) -> None:
            disaster.comes("make directory")
            mkdir(*arguments, **named)

        Path.open = watched_open
        os.fsync, os.replace, os.mkdir = watched_fsync, watched_replace, watched_mkdir

    def watching(self, measure: Callable[..., Any]) -> Callable[..., Any]:
        """A stage's measuring function that says when it begins."""

        def watched(*arguments: Any) -> Any:
            self.comes("measure")
            return measure(*arguments)

        return watched


def serve() -> None:
    """Answer requests until there are no more."""
    # Imported here: this module is also imported by the tests that start it.
    from tiny_study import PROMPTS, tiny_pair, words

    pair, prompts = tiny_pair(), dict(list(PROMPTS.items())[:3])
    further = ["spec.gamma=2", "analysis.bootstrap_samples=20", "execution.threads=1"]
    with tempfile.TemporaryDirectory() as warmed_up:  # imports all there is to import, once
        run_study(pair, words(Path(warmed_up), prompts), Disaster(("", 0), ""))
    for line in sys.stdin:
        output_dir, moment, disaster, answered = json.loads(line)
        if answered:
            import specstudy.analysis.study
            import specstudy.report.html  # noqa: F401 - imported for the children that are forked below
        arguments = [*words(Path(output_dir), prompts), *further]
        with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as moments:
            if not (child := os.fork()):
                os.dup2(said.fileno(), sys.stderr.fileno())
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # answers go there
                study(pair, arguments, Disaster(moment, disaster), moments, answered)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said.seek(0)
            moments.seek(0)
            print(json.dumps([status, said.read(), json.loads(moments.read() or "{}")]), flush=True)


def study(pair: Any, arguments: list[str], disaster: Disaster, moments: Any, answered: bool) -> None:
    """In the child: a study with a disaster; then the child ends."""
    disaster.install()
    status = 99
    try:
        status = run_study(pair, arguments, disaster, answered)
    finally:
        json.dump(disaster.moments, moments)
        moments.flush()
        sys.stderr.flush()
        os._exit(status)


def run_study(pair: Any, arguments: list[str], disaster: Disaster, answered: bool = False) -> int:
    """A study by the way that a command takes. One figure is drawn: more of them are no other kind of file."""
    from dataclasses import replace

    from specstudy.command_line import entry
    from specstudy.running import workflow
    from specstudy.running.stages.decode import DECODE
    from specstudy.running.stages.prefill import PREFILL
    from specstudy.running.stages.speculate import SPECULATE

    def answer_with_one_figure(run_dir: Path, config: Any) -> None:
        from specstudy.report import figures
        from specstudy.running.answer import answer

        figures.DRAWERS = {FIGURE: figures.DRAWERS[FIGURE]}
        answer(run_dir, config)

    workflow.find_models = lambda config: lambda: pair
    stages = [replace(stage, measure=disaster.watching(stage.measure)) for stage in (PREFILL, DECODE, SPECULATE)]
    sys.argv = ["study.py", *arguments]
    try:
        entry.main(lambda config: workflow.run(config, stages, after=answer_with_one_figure if answered else None))
    except SystemExit as ended:
        return int(ended.code or 0)


if __name__ == "__main__":
    serve()
