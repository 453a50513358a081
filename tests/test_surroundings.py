"""Whatever notebooks, cron, containers and CI hand down: a command does its work and ends without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = """
from specstudy.command_line import entry
def work(marker: str) -> None:
    print("\\N{BOX DRAWINGS LIGHT HORIZONTAL} \\N{LATIN SMALL LETTER E WITH ACUTE}", flush=True)
    print("a line\\n" * 100_000)
    open(marker, "w").close()
entry.command(work, names=["marker"], required=["marker"])
"""
FIGURE = """
import pathlib, sys
from specstudy.command_line import surroundings
from specstudy.report.style import figure_style, new_figure, save
with figure_style():
    figure = new_figure()
    figure.subplots().set_title("$5 and 100 %")
    print(*save(figure, pathlib.Path(sys.argv[1]), "drawn"))
"""


def python(script: str, *arguments: str, shell: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """The script under these variables; `shell` is what stands behind it on a command line (`>&-`)."""
    command = [sys.executable, "-c", script, *arguments]
    if shell:
        command = ["sh", "-c", f'exec "$@" {shell}', "sh", *command]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=100, encoding="utf-8"
    )


@pytest.mark.parametrize(
    ("value", "kept"),
    [("", False), ("0", False), ("-5", False), ("\N{SUPERSCRIPT TWO}", False), ("wide", False), ("132", True)],
)
def test_a_width_that_is_none_counts_as_not_given(value: str, kept: bool) -> None:
    script = "import specstudy.command_line, os; print(os.environ.get('COLUMNS'), os.environ.get('LINES'))"
    finished = python(script, COLUMNS=value, LINES=value)
    assert finished.stdout.split() == ([value] if kept else ["None"]) * 2


def test_warnings_are_no_errors() -> None:
    script = (
        "import specstudy.command_line, warnings, os; warnings.warn('old'); print(os.environ.get('PYTHONWARNINGS'))"
    )
    finished = python(script, PYTHONWARNINGS="error")
    assert (finished.returncode, finished.stdout) == (0, "None\n")


def test_docstrings_stay() -> None:
    script = "import sys; from specstudy.command_line import surroundings\n"
    script += "print(sys.flags.optimize, bool(surroundings.__doc__), sys.argv[1])"
    assert python(script, "a b", PYTHONOPTIMIZE="2").stdout == "0 True a b\n"


def test_figures_need_no_backend_and_nobodys_style(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nsavefig.dpi: 7\n")
    plain = python(FIGURE, str(tmp_path / "plain"))
    assert (plain.returncode, plain.stderr) == (0, "")
    odd = python(
        FIGURE,
        str(tmp_path / "odd"),
        MPLBACKEND="module://matplotlib_inline.backend_inline",
        MATPLOTLIBRC=str(tmp_path / "matplotlibrc"),
    )
    assert (odd.returncode, odd.stderr) == (0, "")
    for file in ("drawn.png", "drawn.svg"):
        assert (tmp_path / "plain" / file).read_bytes() == (tmp_path / "odd" / file).read_bytes()


@pytest.mark.parametrize(
    ("shell", "status", "said"),
    [
        (">&-", 0, ""),
        ("<&-", 0, ""),
        ("2>&-", 0, ""),
        ("| :", None, ""),
        ("> /dev/full", 1, "error: what was printed could not be written: No space left on device\n"),
    ],
)
def test_work_ends_whoever_reads(shell: str, status: int | None, said: str, tmp_path: Path) -> None:
    if "/dev/full" in shell and not Path("/dev/full").exists():
        pytest.skip("no device that is full")
    finished = python(COMMAND, f"marker={tmp_path / 'done'}", shell=shell)
    assert (tmp_path / "done").exists()
    assert finished.stderr == said
    assert status is None or finished.returncode == status


def test_a_reader_that_left_is_told_by_the_status_alone(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, f"marker={tmp_path / 'done'}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert (process.stderr.read(), process.wait(timeout=100)) == (b"", 1)
    process.stderr.close()
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("ascii", r"\u2500 \xe9"), ("latin-1", r"\u2500 é")],
)
def test_characters_that_an_encoding_lacks_are_escaped(encoding: str, shown: str, tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", COMMAND, f"marker={tmp_path / 'done'}"],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
        timeout=100,
    )
    assert finished.stdout.splitlines()[0].decode(encoding) == shown
