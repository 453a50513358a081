import importlib.util
import sys
from pathlib import Path

import pytest

from specstudy.config import PROJECT_ROOT

_SPEC = importlib.util.spec_from_file_location("setup", PROJECT_ROOT / "pipelines/setup.py")
assert _SPEC is not None
assert _SPEC.loader is not None
setup = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(setup)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose set-up takes two quick steps: one makes .venv, one writes a file into it."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n[build-system]\nrequires = []\n")
    (tmp_path / "constraints.txt").write_text("torch==1\n")
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    monkeypatch.setattr(setup, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(setup, "READY", tmp_path / ".venv/ready")
    monkeypatch.setattr(setup, "CACHE", tmp_path / ".cache")
    monkeypatch.setattr(setup, "LOG", tmp_path / ".cache/setup.log")
    use_steps(monkeypatch, "print('much output')", "open('.venv/installed', 'x')")
    return tmp_path


def use_steps(monkeypatch: pytest.MonkeyPatch, *scripts: str) -> None:
    making = ("import os; os.mkdir('.venv')", *scripts)
    monkeypatch.setattr(
        setup, "STEPS", {f"step {i}": (sys.executable, "-c", script) for i, script in enumerate(making)}
    )


def test_a_set_up_is_done_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert setup.main() == 0
    output = capsys.readouterr().out
    assert "setup: step 2 ..." in output
    assert "much output" not in output
    assert setup.main() == 0
    assert capsys.readouterr().out == ""


def test_a_long_step_says_that_it_is_at_work(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup, "SILENCE_S", 0.05)
    use_steps(monkeypatch, "import time; print('Collecting torch', flush=True); time.sleep(2)")
    assert setup.main() == 0
    assert "s, Collecting torch" in capsys.readouterr().out


def test_a_change_of_what_is_installed_makes_it_anew_and_no_other_change(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert setup.main() == 0
    with open(project / "pyproject.toml", "a") as file:
        file.write("[tool.ruff]\n")
    capsys.readouterr()
    assert setup.main() == 0
    assert capsys.readouterr().out == ""
    (project / "constraints.txt").write_text("torch==2\n")
    assert setup.main() == 0
    assert "setup: done" in capsys.readouterr().out


def test_a_failed_step_shows_what_was_said_and_the_next_set_up_starts_over(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_steps(monkeypatch, "open('.venv/half', 'x'); raise SystemExit('no such wheel')", "open('never', 'x')")
    assert setup.main() == 1
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "no such wheel",
        "error: step 1 failed; all of its output is in .cache/setup.log",
    ]
    assert not (project / "never").exists()
    assert not (project / ".venv/ready").exists()
    use_steps(monkeypatch, "open('.venv/half', 'x')")
    assert setup.main() == 0


def test_an_interrupted_set_up_starts_over(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> bool:
        (project / ".venv").mkdir()
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(setup, "_run_steps", interrupt)
        with pytest.raises(KeyboardInterrupt):
            setup.main()
    assert setup.main() == 0
    assert (project / ".venv/installed").exists()
