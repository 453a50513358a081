"""A study given words, up to the point where models would be found: the line it ends in, and that it writes nothing."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import NoReturn
from unittest.mock import patch

import pytest

from specstudy.command_line import entry
from specstudy.config import StudyConfig
from specstudy.errors import UserError
from specstudy.running import workflow
from specstudy.running.stages.prefill import PREFILL

NO_MODELS = "no models are found here"


def last_line(words: Sequence[str]) -> str:
    """What a study with these words says before it ends: one printable line, NO_MODELS if the words are good.

    Anything but an error that the user can mend, and anything written, is raised.
    """
    said = io.StringIO()
    with (
        patch.object(sys, "argv", ["study.py", *words]),
        patch.object(workflow, "find_models", _no_models),
        nothing_written(),
        redirect_stderr(said),
        pytest.raises(SystemExit) as ended,
    ):
        entry.main(lambda config: workflow.run(config, [PREFILL]))
    assert ended.value.code == 2
    line = said.getvalue()
    assert line.startswith("error: ")
    assert line.endswith("\n")
    assert line[:-1].isprintable(), repr(line)
    return line.removeprefix("error: ")[:-1]


@contextmanager
def nothing_written() -> Iterator[None]:
    """Within this block making a directory or putting a file in its place, which every output needs, is an error; but
    for bytecode of what is imported."""

    def refuse(name: str) -> Callable[..., object]:
        own = getattr(os, name)

        def refused(*arguments: object, **named: object) -> object:
            if "__pycache__" in str(arguments[-1 if name == "replace" else 0]):
                return own(*arguments, **named)
            raise AssertionError(f"os.{name}{arguments}")

        return refused

    with patch.object(os, "mkdir", refuse("mkdir")), patch.object(os, "replace", refuse("replace")):
        yield


def _no_models(config: StudyConfig) -> NoReturn:
    raise UserError(NO_MODELS)
