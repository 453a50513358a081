"""Models that fail on one prompt, or whose caches are stale: said, written down, and the other prompts go on."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from _faults import stale_draft, stale_verifier
from tiny_study import PROMPTS, configuration, tiny_pair

from specstudy import open_run
from specstudy.errors import UserError
from specstudy.measure import self_check
from specstudy.models import device
from specstudy.models.load import LanguageModel, Pair
from specstudy.report.checks import check_rows
from specstudy.running import workflow
from specstudy.running.stages.decode import DECODE
from specstudy.running.stages.prefill import PREFILL
from specstudy.running.stages.speculate import SPECULATE
from specstudy.tables.manifest import failed_self_checks
from specstudy.tables.run_directory import read_table

STAGES = (PREFILL, DECODE, SPECULATE)
# A byte that only one of the prompts has.
MARK = "Q"
GREEDY = "decode.temperature=0.0"  # so that no other prompt's answer has it by chance
MARKED = {**PROMPTS, "marked": f"Say {MARK} in a few words."}


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    made = tiny_pair()
    monkeypatch.setattr(workflow, "find_models", lambda config: lambda: made)
    return made


def mark_of(pair: Pair) -> int:
    return int(pair.tokenizer.convert_tokens_to_ids(MARK))


def spoil(pair: Pair, role: str) -> None:
    """Give a model an embedding that is not a number."""
    with torch.no_grad():
        getattr(pair, role).module.get_input_embeddings().weight[mark_of(pair)] = torch.nan


def errors(output_dir: Path) -> dict[str, dict[str, Any]]:
    """By stage; only the marked prompt may have failed."""
    rows = read_table((output_dir / "latest").resolve(), "errors").to_pylist()
    assert {row["prompt_id"] for row in rows} <= {"marked"}
    return {row["stage"]: row for row in rows}


def n_done(output_dir: Path) -> dict[str, int]:
    stages = open_run(output_dir / "latest").manifest["stages"]
    return {name: stage["n_done"] for name, stage in stages.items()}


@pytest.mark.parametrize(
    ("role", "stages"), [("verifier", {"prefill", "decode", "speculate"}), ("draft", {"decode", "speculate"})]
)
def test_a_prompt_that_gives_nan_is_named_and_the_others_go_on(
    role: str, stages: set[str], pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(pair, role)
    assert workflow.run(configuration(tmp_path, MARKED, GREEDY), STAGES) == 1
    rows = errors(tmp_path)
    assert set(rows) == stages
    for row in rows.values():
        assert row["kind"] == "NotFiniteError"
        assert "first in the embeddings" in row["message"]
    assert {name: n_done(tmp_path)[name] for name in stages} == dict.fromkeys(stages, len(PROMPTS))
    assert "of marked: tiny gave NaN or infinite logits" in capsys.readouterr().err


def test_a_prompt_that_takes_too_much_memory_is_named_and_the_others_go_on(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(module: Any, args: Any, given: dict[str, Any]) -> None:
        if (given["input_ids"] == mark_of(pair)).any():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    pair.verifier.module.register_forward_pre_hook(refuse, with_kwargs=True)
    assert workflow.run(configuration(tmp_path, MARKED, GREEDY), STAGES) == 1
    rows = errors(tmp_path)
    assert set(rows) == {"prefill", "decode", "speculate"}
    assert {row["kind"] for row in rows.values()} == {"OutOfMemoryError"}
    assert n_done(tmp_path) == dict.fromkeys(rows, len(PROMPTS))
    assert "of marked: " in capsys.readouterr().err


@pytest.mark.parametrize("role", ["verifier", "draft"])
def test_a_model_that_gives_nothing_but_nan_ends_the_study_in_one_line(role: str, pair: Pair, tmp_path: Path) -> None:
    with torch.no_grad():
        getattr(pair, role).module.get_parameter("model.norm.weight")[0] = torch.nan
    with pytest.raises(UserError, match=r"^tiny gave NaN or infinite logits in float32, first in layer 2 of 3$"):
        workflow.run(configuration(tmp_path), STAGES)


def test_a_failed_prompt_leaves_no_tensors_behind(pair: Pair, tmp_path: Path) -> None:
    held: list[weakref.ref[torch.Tensor]] = []
    found_at_the_next: list[bool] = []

    def refuse(module: Any, args: Any, given: dict[str, Any]) -> None:
        if (given["input_ids"] == mark_of(pair)).any():
            large = torch.zeros(10)
            held.append(weakref.ref(large))
            raise torch.OutOfMemoryError("CUDA out of memory.")
        if held and not found_at_the_next:  # the pass after the failure tells; each collection takes long
            gc.collect()
            found_at_the_next.append(any(reference() is not None for reference in held))

    pair.verifier.module.register_forward_pre_hook(refuse, with_kwargs=True)
    prompts = {"marked": MARKED["marked"], **PROMPTS}
    assert workflow.run(configuration(tmp_path, prompts, GREEDY), [DECODE]) == 1
    assert found_at_the_next
    assert not any(found_at_the_next)


def test_unused_memory_is_given_back_after_every_prompt(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(pair, "verifier")
    emptied: list[str] = []
    monkeypatch.setattr(device, "empty_cache", lambda of: emptied.append(str(of)))
    assert workflow.run(configuration(tmp_path, MARKED, GREEDY), [DECODE]) == 1
    assert emptied == ["cpu"] * len(MARKED)  # after the one that fails too


@pytest.fixture(params=[stale_draft, stale_verifier])
def _stale(request: pytest.FixtureRequest) -> Iterator[None]:
    with request.param():
        yield


@pytest.mark.usefixtures("_stale")
def test_a_stale_cache_marks_the_run_and_is_said_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tiny_pair()
    # A draft close to the verifier: full acceptances and rejections in a few rounds.
    near = replace(made.draft, module=tiny_pair().verifier.module)
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in near.module.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=noise))
    monkeypatch.setattr(workflow, "find_models", lambda config: lambda: replace(made, draft=near))
    config = configuration(tmp_path, PROMPTS, "decode.max_new_tokens=24", "decode.temperature=1.0")
    for stages in (STAGES, STAGES, ()):  # measured, kept, and only answered from
        assert workflow.run(config, stages) == 1
        assert "SELF-CHECK FAILED in speculate" in capsys.readouterr().err
    outcome = open_run(tmp_path / "latest").manifest["self_checks"]["speculate"]
    assert not outcome["passed"]
    assert outcome["verifier_logits"]["passed"] != outcome["draft_logits"]["passed"]


def test_a_check_that_ends_in_nan_marks_the_run_and_is_said(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = self_check.uncached_logits

    def spoilt(model: LanguageModel, *arguments: Any, **named: Any) -> torch.Tensor:
        logits = real(model, *arguments, **named).clone()
        logits[0] = torch.nan
        return logits

    monkeypatch.setattr(self_check, "uncached_logits", spoilt)
    config = configuration(tmp_path)
    assert workflow.run(config, STAGES) == 1
    assert "SELF-CHECK FAILED in speculate" in capsys.readouterr().err
    manifest = open_run(tmp_path / "latest").manifest
    assert failed_self_checks(manifest) == ["speculate"]
    logits = next(row for row in check_rows(manifest) if row.meaning.startswith("verifier: logits"))
    assert logits.measured.endswith("not finite largest difference and largest RMS difference and limit RMS")


def test_the_honest_engine_is_not_marked(pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert workflow.run(configuration(tmp_path, PROMPTS, "spec.temperature=[0.0,1.0]"), STAGES) == 0
    assert "SELF-CHECK" not in capsys.readouterr().err
    assert open_run(tmp_path / "latest").manifest["self_checks"]["speculate"]["passed"]
