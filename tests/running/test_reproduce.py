"""`make reproduce`, on tiny random models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_study import configuration

from specstudy.config import StudyConfig
from specstudy.errors import UserError
from specstudy.models.load import Pair
from specstudy.running import reproduce, workflow
from specstudy.running.stage import Records, Stage, Unit
from specstudy.running.stages.decode import DECODE
from specstudy.running.stages.prefill import PREFILL
from specstudy.tables import manifest


@pytest.fixture
def finished_run(tiny_models: None, tmp_path: Path) -> Path:
    """A run of two stages."""
    assert workflow.run(configuration(tmp_path), [PREFILL, DECODE]) == 0
    return (tmp_path / "latest").resolve()


def watched(stage: Stage, measured: list[str], spoil: bool = False) -> Stage:
    def measure(pair: Pair, config: StudyConfig, unit: Unit) -> Records:
        measured.append(unit.prompt.prompt_id)
        records = stage.measure(pair, config, unit)
        if spoil and unit.prompt.prompt_id == "prompt-3":
            run, *_ = records["decode_runs"]
            return {**records, "decode_runs": [replace(run, text="spoilt")]}
        return records

    return replace(stage, measure=measure)


def test_a_run_is_measured_anew_and_equal(
    finished_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[str] = []
    stages = {stage.name: watched(stage, measured) for stage in (PREFILL, DECODE)}
    monkeypatch.setattr(reproduce, "STAGES", stages)
    for n in (1, 2):
        assert reproduce.reproduce(str(finished_run)) == 0
        assert len(measured) == 10 * n
        said = capsys.readouterr().out.splitlines()
        assert said[0].endswith(f"prefill, decode, in {finished_run.parent}/reproductions/{finished_run.name}-{n}")
        assert said[1:] == ["equal: every measured table, bit for bit, columns of a clock excepted"]


def test_a_stage_of_no_name_is_one_line(finished_run: Path) -> None:
    manifest.update(finished_run, "stages", {"decod": {"n_done": 1}})
    with pytest.raises(UserError, match="decod: no such stage; did you mean decode"):
        reproduce.reproduce(str(finished_run))


def test_the_first_difference_is_told(
    finished_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reproduce, "STAGES", {"prefill": PREFILL, "decode": watched(DECODE, [], spoil=True)})
    assert reproduce.reproduce(str(finished_run)) == 1
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("differs (first: that run, second: this one) in decode_runs: text of prompt_id='prompt-3'")
    assert last.endswith("'spoilt' in the second")


def test_what_is_not_as_it_was_is_said_before_measuring(
    finished_run: Path, pair: Pair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = replace(pair, draft=replace(pair.draft, fingerprint="other"))
    monkeypatch.setattr(workflow, "find_models", lambda config: lambda: other)
    reproduce.reproduce(str(finished_run))
    assert capsys.readouterr().out.splitlines()[1] == "not as then: models.draft.sha256 was 'tiny-1', is 'other'"


def test_an_unfinished_run_is_refused(finished_run: Path) -> None:
    workflow.manifest.start(finished_run)
    with pytest.raises(UserError, match="is not finished"):
        reproduce.reproduce(str(finished_run))
    with pytest.raises(UserError, match="run=nosuch: no such directory"):
        reproduce.reproduce("nosuch")
