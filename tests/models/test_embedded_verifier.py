"""The embedded verifier's conversion: once, whole or not at all, whoever else is at it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_checkpoints import END_ID, write_gguf
from transformers import AutoTokenizer

from specstudy.errors import UserError
from specstudy.models import embedded

KILLED_HALF_WAY = """
import sys, time
from pathlib import Path
from specstudy.models import embedded

def convert(gguf, directory):
    directory.mkdir()
    (directory / "model.safetensors").write_bytes(b"half of it")
    print("half way", flush=True)
    time.sleep(100)

embedded.DIRECTORY = Path(sys.argv[1])
embedded.packaged_gguf = lambda: None
embedded._convert = convert
embedded.ensure_embedded_verifier()
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the copy goes instead; a small GGUF stands in for the packaged one."""
    gguf = tmp_path / "small.gguf"
    write_gguf(gguf)
    monkeypatch.setattr(embedded, "packaged_gguf", lambda: gguf)
    monkeypatch.setattr(embedded, "DIRECTORY", tmp_path / "models" / "copy")
    return embedded.DIRECTORY


def test_the_copy_is_safetensors_in_bfloat16_with_its_tokenizer(directory: Path) -> None:
    assert embedded.ensure_embedded_verifier() == directory
    assert {t.dtype for t in load_file(directory / "model.safetensors").values()} == {torch.bfloat16}
    assert AutoTokenizer.from_pretrained(directory).chat_template
    assert json.loads((directory / "generation_config.json").read_text())["eos_token_id"] == END_ID
    assert sorted(path.name for path in directory.parent.iterdir()) == ["copy", "copy.lock"]


def test_it_is_made_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded.ensure_embedded_verifier()

    def fail() -> Path:
        raise AssertionError("converted again")

    monkeypatch.setattr(embedded, "packaged_gguf", fail)
    assert embedded.ensure_embedded_verifier() == directory


def test_of_several_at_once_one_converts_and_the_others_wait(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n_conversions = 0

    def convert(gguf: Path, unfinished: Path) -> None:
        nonlocal n_conversions
        n_conversions += 1
        unfinished.mkdir()
        time.sleep(0.2)
        (unfinished / "whole").touch()

    monkeypatch.setattr(embedded, "_convert", convert)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: embedded.ensure_embedded_verifier(), range(4)):
            assert (found / "whole").exists()
    assert n_conversions == 1


def test_a_killed_conversion_leaves_nothing_that_looks_finished(directory: Path) -> None:
    command = [sys.executable, "-c", KILLED_HALF_WAY, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "half way\n"
        other.send_signal(signal.SIGKILL)
    assert not directory.exists()
    embedded.ensure_embedded_verifier()
    assert len(load_file(directory / "model.safetensors")) > 5


def test_a_failed_conversion_is_tried_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as context:
        context.setattr(embedded, "_convert", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            embedded.ensure_embedded_verifier()
    assert not directory.exists()
    assert embedded.ensure_embedded_verifier().is_dir()


def test_the_packaged_file_is_found_without_importing_its_package() -> None:
    assert embedded.packaged_gguf().stat().st_size > 90_000_000
    assert embedded.PACKAGE not in sys.modules


def test_without_the_package_it_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "PACKAGE", "a_package_of_no_name")
    with pytest.raises(UserError, match="is not installed; `make setup` installs it"):
        embedded.packaged_gguf()


class TestCommand:
    def test_it_says_where_the_model_is(self, directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert embedded.main() == 0
        assert capfd.readouterr() == (f"embedded verifier: {directory}\n", "")

    def test_an_error_is_a_line(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(embedded, "DIRECTORY", directory)
        monkeypatch.setattr(embedded, "PACKAGE", "a_package_of_no_name")
        assert embedded.main() == 2
        output = capfd.readouterr()
        assert output.out == ""
        assert output.err.startswith("error: the package that carries")
        assert output.err.count("\n") == 1
