"""One small study of the shipped models, run by its command, and the same models loaded without the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from processes import STUDY_WORDS, run
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from specstudy import open_run
from specstudy.models.embedded import ensure_embedded_verifier
from specstudy.models.load import Pair, load_pair
from specstudy.tables.run import Run


@pytest.fixture(scope="session")
def output_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the study lies; one directory for all workers of a test run."""
    test_run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    return tmp_path_factory.getbasetemp().parent / f"end-to-end-{test_run}"


@pytest.fixture(scope="session")
def study_output(output_dir: Path) -> str:
    """What the study printed. It is run by whichever worker comes first."""
    said = output_dir / "said.txt"
    with FileLock(output_dir.with_suffix(".lock")):
        if not said.exists():
            finished = run("study", *STUDY_WORDS, f"output_dir={output_dir}")
            assert (finished.status, finished.err) == (0, "")
            said.write_text(finished.out)
    return said.read_text()


@pytest.fixture(scope="session")
def study_run(output_dir: Path, study_output: str) -> Run:
    """The study, opened."""
    return open_run(output_dir / "latest")


@pytest.fixture(scope="session")
def reference() -> PreTrainedModel:
    """The verifier as transformers alone loads it: float32, eager attention."""
    torch.set_num_threads(1)
    directory = ensure_embedded_verifier()
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerBase:
    """The verifier's tokenizer."""
    return AutoTokenizer.from_pretrained(ensure_embedded_verifier())


@pytest.fixture(scope="session")
def pair() -> Pair:
    """The shipped pair as the project loads it, in float32."""
    torch.set_num_threads(1)
    return load_pair("embedded:smollm2", "data/models/smollm2-draft", torch.device("cpu"), torch.float32)
