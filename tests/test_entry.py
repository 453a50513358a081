import errno
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from specstudy.command_line import entry
from specstudy.config import PROJECT_ROOT, StudyConfig, all_meanings, all_rules
from specstudy.errors import UserError

COMMANDS = [file for file in sorted((PROJECT_ROOT / "pipelines").glob("*.py")) if "command_line" in file.read_text()]

BLOCK_TORCH = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers"):
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocked())
"""


def exit_code(monkeypatch: pytest.MonkeyPatch, words: list[str], run: Callable[[], None]) -> int:
    monkeypatch.setattr(sys, "argv", ["study.py", *words])
    with pytest.raises(SystemExit) as exited:
        run()
    code = exited.value.code
    assert isinstance(code, int)
    return code


def test_a_stage_gets_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[StudyConfig] = []
    assert exit_code(monkeypatch, ["spec.gamma=6"], lambda: entry.main(seen.append)) == 0
    assert [config.spec.gamma for config in seen] == [(6,)]


def test_a_wrong_word_is_one_line_and_the_stage_does_not_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[StudyConfig] = []
    assert exit_code(monkeypatch, ["spec.gama=6"], lambda: entry.main(seen.append)) == 2
    output = capsys.readouterr()
    assert (seen, output.out, output.err.count("\n")) == ([], "", 1)
    assert output.err.startswith("error: spec.gama: no such key; did you mean spec.gamma?")


def fail_with(error: BaseException) -> entry.Stage:
    def stage(config: StudyConfig) -> None:
        raise error

    return stage


def behind(cause: BaseException) -> Exception:
    """What a library raises that could not import one of its modules."""
    error = ModuleNotFoundError("Could not import module")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("words", [[], ["--multirun", "spec.gamma=2,3"]], ids=["once", "in a sweep"])
@pytest.mark.parametrize(
    ("error", "whose"),
    [
        (MemoryError(), "this machine"),
        (behind(MemoryError()), "this machine"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "this machine"),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "this machine"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"), "the GPU (nvidia-smi"),
        (RuntimeError("MPS backend out of memory (MPS allocated: 17.0 GB)"), "the GPU, which it shares"),
    ],
    ids=["plain", "behind another", "system", "library", "cuda", "mps"],
)
def test_memory_that_runs_out_is_one_line_that_says_what_helps(
    error: Exception,
    whose: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [*words, f"output_dir={tmp_path}"]
    assert exit_code(monkeypatch, words, lambda: entry.main(fail_with(error))) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "points failed" not in line]
    said = [line for line in lines if not line.startswith("point ")]
    assert len(said) == max(1, len(lines) - len(said))
    assert all(line.startswith(f"error: the memory of {whose}") for line in said)
    assert all("ran out; smaller models, shorter prompts" in line for line in said)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UserError("no model\nat all"), 2, "error: no model at all\n"),
        (UserError("\x1b[2J\x00\u202eé🙂\ud800"), 2, "error: \\x1b[2J\\x00\\u202eé🙂\\ud800\n"),
        (KeyboardInterrupt(), 130, "interrupted; the same command goes on from here\n"),
    ],
)
def test_what_the_user_can_mend_and_an_interruption_are_one_line(
    error: BaseException,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code(monkeypatch, [], lambda: entry.main(fail_with(error))) == code
    assert capsys.readouterr().err == line


INTERRUPT_AT_IMPORT = """
import runpy, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "hydra":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
runpy.run_path({command!r}, run_name="__main__")
"""


@pytest.mark.parametrize("command", ["study", "runs"])
def test_an_interruption_while_modules_are_imported_is_the_same_line(command: str) -> None:
    code = INTERRUPT_AT_IMPORT.format(command=str(PROJECT_ROOT / "pipelines" / f"{command}.py"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "interrupted; the same command goes on from here\n"


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["study.py"])
    with pytest.raises(ZeroDivisionError):
        entry.main(fail_with(ZeroDivisionError()))


def test_a_checkout_that_was_moved_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/elsewhere/pipelines/study.py"])
    with pytest.raises(SystemExit) as exited:
        entry.main(lambda config: 0)
    assert exited.value.code == 2
    said = f"error: /elsewhere/.venv was made for {PROJECT_ROOT}: remove it and run the same command again\n"
    assert capsys.readouterr().err == said


def test_what_a_stage_returns_is_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exit_code(monkeypatch, [], lambda: entry.main(lambda config: 1)) == 1


def test_an_unknown_option_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(monkeypatch, ["--cfg"], lambda: entry.main(lambda config: 0)) == 2
    assert capsys.readouterr().err.startswith("error: --cfg: no such option")


def test_help_lists_choices_and_settings(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(monkeypatch, ["--help"], lambda: entry.main(lambda config: 1)) == 0
    output = capsys.readouterr().out
    assert "models=gpt2|qwen2.5|qwen2.5-1.5b-draft|smollm2" in output
    lines = output.splitlines()
    for key, rule in all_rules().items():
        place = next(i for i, line in enumerate(lines) if line.startswith(f"  {key}="))
        assert lines[place + 1].strip(), f"{key} has no meaning"
        assert lines[place + 2].strip() == rule.wanted
    assert "  spec.gamma=4" in lines
    assert "  spec.temperature=null" in lines
    for key in (line.removesuffix("=null").strip() for line in lines if line.endswith("=null")):
        assert "null" in all_rules()[key].wanted
        assert "null: " in all_meanings()[key]


def test_a_sweep_runs_every_point_then_the_joint_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    points: list[StudyConfig] = []
    joint: list[list[StudyConfig]] = []
    words = ["-m", "spec.gamma=2,4", "prompts.path=/a b/${c}(d).jsonl", "output_dir=out"]
    assert exit_code(monkeypatch, words, lambda: entry.main(points.append, joint.append)) == 0
    assert [point.spec.gamma for point in points] == [(2,), (4,)]
    assert {point.prompts.path for point in points} == {"/a b/${c}(d).jsonl"}
    assert joint == [points]
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "multirun.yaml"]
    assert "point 2 of 2: spec.gamma=4\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (UserError("too\nsmall"), 2, "error: too small\n"),
        (ZeroDivisionError("a bug"), 1, "ZeroDivisionError: a bug\n"),
        (None, 1, ""),
    ],
    ids=["to be mended", "bug", "failed prompts"],
)
def test_a_failing_point_does_not_cost_the_others(
    fault: Exception | None,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    done: list[int] = []
    joint: list[int] = []

    def stage(config: StudyConfig) -> int:
        if config.spec.gamma == (2,):
            if fault:
                raise fault
            return 1
        done.append(config.spec.gamma[0])
        return 0

    def report(configs: list[StudyConfig]) -> None:
        joint.append(len(configs))

    words = ["-m", "seed=0", "spec.gamma=2,4,6", f"output_dir={tmp_path}"]
    assert exit_code(monkeypatch, words, lambda: entry.main(stage, report)) == code
    assert (done, joint) == ([4, 6], [3])
    lines = capsys.readouterr().err
    assert "point 1 of 3: spec.gamma=2\n" in lines
    assert f"{said}point 2 of 3: spec.gamma=4\npoint 3 of 3: spec.gamma=6\n" in lines
    assert lines.endswith("error: 1 of 3 points failed: spec.gamma=2\n")


def test_an_interruption_ends_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[StudyConfig] = []

    def stage(config: StudyConfig) -> None:
        seen.append(config)
        raise KeyboardInterrupt

    words = ["-m", "spec.gamma=2,4", f"output_dir={tmp_path}"]
    assert exit_code(monkeypatch, words, lambda: entry.main(stage, lambda configs: pytest.fail("interrupted"))) == 130
    assert len(seen) == 1


def test_a_sweep_with_one_wrong_point_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[StudyConfig] = []
    assert exit_code(monkeypatch, ["-m", "spec.gamma=2,0"], lambda: entry.main(seen.append)) == 2
    assert seen == []


def test_a_command_takes_its_own_words_as_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []

    def show(id: str, run: str = "outputs/latest") -> None:
        seen.append((id, run))

    words = ["id=[a,b ${c}"]
    assert exit_code(monkeypatch, words, lambda: entry.command(show, ("id", "run"), required=("id",))) == 0
    assert seen == [("[a,b ${c}", "outputs/latest")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ido=3"], "error: ido=3: no such argument; did you mean id? (valid here: id, run)"),
        ([], "error: id is not given: write id=... [run=...]"),
        (["id="], "error: id is not given"),
    ],
)
def test_a_command_refuses_other_words(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run() -> None:
        entry.command(lambda id, run="": None, ("id", "run"), required=("id",))

    assert exit_code(monkeypatch, words, run) == 2
    assert capsys.readouterr().err.startswith(message)


@pytest.mark.parametrize("file", COMMANDS, ids=lambda file: file.stem)
def test_every_command_refuses_a_wrong_word_without_torch(file: Path, tmp_path: Path) -> None:
    script = f"import runpy\n{BLOCK_TORCH}"
    script += f"runpy.run_path({str(file)!r}, run_name='__main__')"
    finished = subprocess.run(
        [sys.executable, "-c", script, "nosuch.key=6"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (finished.returncode, finished.stderr.count("\n")) == (2, 1), finished.stderr
    assert finished.stderr.startswith("error: nosuch.key")


def test_a_sweep_leaves_the_loggers_as_they_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("specstudy.tables.files")
    words = ["-m", "seed=1,2", f"output_dir={tmp_path / 'out'}"]
    assert exit_code(monkeypatch, words, lambda: entry.main(lambda config: 0)) == 0
    assert not logger.disabled
    logger.warning("still heard")
    assert "still heard" in caplog.text
