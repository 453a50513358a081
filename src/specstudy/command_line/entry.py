"""What every command shares: words from the shell or from make, errors of one line, exit codes, sweeps.

What is run imports torch inside its functions, so that a wrong word is refused before that takes its seconds.
Exit codes: 0 done; 1 a bug, or what the stage returned; 2 something the user can mend; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specstudy import overrides
from specstudy.command_line import interruption, makeflags, out_of_memory, surroundings
from specstudy.config import PROJECT_ROOT, StudyConfig, all_meanings, all_rules, local_path
from specstudy.errors import UserError, no_such
from specstudy.tables.differences import override_text

if TYPE_CHECKING:
    from omegaconf import DictConfig

Stage = Callable[[StudyConfig], int | None]


def main(stage: Stage, after_sweep: Callable[[list[StudyConfig]], int | None] | None = None) -> None:
    """Run a stage with the configuration that the command line asks for, and exit.

    With `-m` the stage runs for every point of a sweep, through Hydra's own main and its launchers. A point that fails
    does not stop the others; `after_sweep` then gets the configurations of all points.
    """

    def run() -> int:
        words, options = _command_line(("-m", "--multirun"))
        if "help" in options:
            print(_usage())
            return 0
        if not options:
            return stage(overrides.study_config(words)) or 0
        prepared = overrides.prepare(words, sweep=True)
        configs = overrides.sweep_configs(prepared)
        failed = _multirun(stage, prepared, len(configs), sweep_dir=local_path(configs[0].output_dir))
        status = (after_sweep(configs) if after_sweep else None) or 0
        if failed:
            print(f"error: {len(failed)} of {len(configs)} points failed: {', '.join(failed)}", file=sys.stderr)
        return max(status, *failed.values()) if failed else status

    sys.exit(_exit_code(run))


def command(
    function: Callable[..., int | None], names: Sequence[str], required: Sequence[str] = (), bare: str = ""
) -> None:
    """Run a function with `name=value` words of its own, given as text by keyword, and exit. Hydra is not involved.

    A word without `=` is the value of the argument called `bare`, if there is one.
    """

    def run() -> int:
        words, options = _command_line(())
        usage = " ".join(f"{name}=..." if name in required else f"[{name}=...]" for name in names)
        if "help" in options:
            print(f"usage: {Path(sys.argv[0]).stem} {usage}")
            return 0
        arguments = dict(_argument(f"{bare}={word}" if bare and "=" not in word else word, names) for word in words)
        for name in required:
            if not arguments.get(name):
                raise UserError(f"{name} is not given: write {usage}")
        return function(**arguments) or 0

    sys.exit(_exit_code(run))


def _argument(word: str, names: Sequence[str]) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or name not in names:
        raise no_such("argument", name, names, shown=word)
    return name, value


def _command_line(known_options: Sequence[str]) -> tuple[list[str], set[str]]:
    """Override words, and the options among the rest. `--from-make` says that the words come by way of make."""
    given = sys.argv[1:]
    words = [word for word in given if not word.startswith("-")]
    options = {word for word in given if word.startswith("-")}
    if "--from-make" in options:
        options.remove("--from-make")
        words += makeflags.override_words(os.environ)
        for name in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL"):
            os.environ.pop(name, None)  # they are ours; nothing that a stage starts may take them for its own
    if options & {"-h", "--help"}:
        return words, {"help"}
    if unknown := options.difference(known_options):
        raise no_such("option", min(unknown), ["--help", *known_options])
    return words, options


def _multirun(stage: Stage, prepared: Sequence[str], n_points: int, sweep_dir: Path) -> dict[str, int]:
    """Run the stage at every point; the status of each point that failed, by its words."""
    import hydra
    from hydra.core.hydra_config import HydraConfig

    failed: dict[str, int] = {}
    own_process, swept = os.getpid(), overrides.swept_keys(prepared)

    def point(composed: DictConfig) -> None:
        given = HydraConfig.get().overrides.task
        words = " ".join(word for word in given if word.partition("=")[0] in swept)
        print(f"point {HydraConfig.get().job.num + 1} of {n_points}: {words}", file=sys.stderr, flush=True)
        if status := _status_of_point(stage, composed):
            failed[words] = status
            if os.getpid() != own_process:  # a launcher's: only what is raised there arrives here
                raise UserError(f"the point {words} failed")

    os.environ["HYDRA_FULL_ERROR"] = "1"  # hands errors through to us instead of printing them
    quoted = overrides.quoted(str(sweep_dir))
    place = [] if any(word.startswith("hydra.sweep.dir=") for word in prepared) else [f"hydra.sweep.dir={quoted}"]
    sys.argv = [sys.argv[0], "--multirun", *prepared, *place]
    run_all = hydra.main(config_path=str(overrides.CONFIG_DIR), config_name=overrides.CONFIG_NAME, version_base="1.3")
    try:
        run_all(point)()
    except UserError as error:
        failed[_one_line(error)] = 2
    return failed


def _status_of_point(stage: Stage, composed: DictConfig) -> int:
    """What the stage returned; what went wrong is said at once, as it would be without a sweep."""
    try:
        return stage(overrides.from_hydra(composed)) or 0
    except Exception as error:  # sorted at once: what the user can mend is told, a bug is shown in full
        if _is_told(error):
            return 2
        traceback.print_exc()  # a bug in one point is shown in full, and the other points go on
        return 1


def _exit_code(run: Callable[[], int]) -> int:
    """Run, turning what the user can mend and an interruption into one line; a bug keeps its traceback.

    What was printed and could not be written makes a success a failure; a reader that had seen enough knows.
    """
    outlets = surroundings.settle_streams()
    status = _status(run)
    sys.stdout.flush()
    for fault in filter(None, (outlet.fault for outlet in outlets)):
        if not isinstance(fault, BrokenPipeError):
            print(f"error: what was printed could not be written: {fault.strerror}", file=sys.stderr)
        status = status or 1
    return status


def _status(run: Callable[[], int]) -> int:
    try:
        _check_installation()
        return run()
    except KeyboardInterrupt:
        print(interruption.MESSAGE, file=sys.stderr)
        return interruption.INTERRUPTED
    except Exception as error:  # sorted at once: what the user can mend is told, a bug is shown in full
        if _is_told(error):
            return 2
        raise


def _is_told(error: Exception) -> bool:
    """Print the one line of what the user can mend, memory that ran out included; whatever else comes is a bug."""
    line = _one_line(error) if isinstance(error, UserError) else out_of_memory.line_for(error)
    if line is not None:
        print(f"error: {line}", file=sys.stderr)
    return line is not None


def _check_installation() -> None:
    """A copied or moved checkout has a .venv that would run the code of the place where it was made."""
    script = Path(sys.argv[0]).resolve()
    here = script.parents[1]
    if script.parent.name == "pipelines" and here != PROJECT_ROOT:
        raise UserError(f"{here}/.venv was made for {PROJECT_ROOT}: remove it and run the same command again")


def _one_line(error: UserError) -> str:
    """Without what would break the line or command the terminal: words and file names may hold anything."""
    line = " ".join(str(error).split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def _usage() -> str:
    lines = [f"usage: {Path(sys.argv[0]).name} [-m] key=value ...", "", "choices:"]
    lines += [f"  {group}={'|'.join(overrides.choices(group))}" for group in overrides.groups()]
    lines += ["", "settings, each with its default, its meaning and what it may be:"]
    meanings, defaults = all_meanings(), overrides.defaults()
    for key, rule in all_rules().items():
        lines += [f"  {key}={override_text(defaults[key])}", f"      {meanings[key]}", f"      {rule.wanted}"]
    return "\n".join(lines)
