from __future__ import annotations

from pathlib import Path

import pytest
from tiny_study import tiny_pair

from specstudy.condition import Condition
from specstudy.config import ExecutionConfig, StudyConfig
from specstudy.overrides import study_config
from specstudy.prompts.prompt import Position, Prompt, RenderedPrompt
from specstudy.running import duration, workflow
from specstudy.running.duration import Pace, duration_words, seconds_of, unit_seconds
from specstudy.running.stage import Unit
from specstudy.running.stages.prefill import PREFILL

PACE = Pace(verifier_step_s=0.1, draft_step_s=0.02)


def unit(condition: Condition | None = None) -> Unit:
    position = Position(token_id=1, role="user", structural_role=None)
    prompt = Prompt(prompt_id="a", category="b", text="c")
    return Unit(RenderedPrompt(prompt=prompt, text="c", positions=(position,) * 50), condition, 0)


def test_what_a_unit_takes_grows_with_its_tokens_and_the_pace() -> None:
    config = StudyConfig()
    at_gamma = [unit_seconds("speculate", unit(Condition(g, "model", "none", 0.7, 0.9)), config, PACE) for g in (2, 8)]
    assert at_gamma == pytest.approx([1.25 * 128 * (0.1 + (0.1 + g * 0.02) / 1.8) for g in (2, 8)])
    assert unit_seconds("prefill", unit(), config, PACE) == pytest.approx(0.16 * 50 * 0.1)
    assert unit_seconds("decode", unit(), config, PACE) == pytest.approx(1.7 * 128 * 0.12)


@pytest.mark.parametrize(
    ("seconds", "words"), [(26.1, "about 30 s ("), (261.0, "about 4 minutes (100 ms"), (26112.0, "about 7.3 hours (")]
)
def test_durations_are_rounded_as_estimates_are(seconds: float, words: str) -> None:
    assert words in duration_words(seconds, PACE)


def test_workers_share_the_work() -> None:
    config = StudyConfig(execution=ExecutionConfig(strategy="ray", workers=10))
    units = [("decode", unit())] * 100
    assert seconds_of(units, config, PACE) == pytest.approx(10 * unit_seconds("decode", unit(), config, PACE))


def test_a_command_says_how_long_it_takes_unless_all_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = tiny_pair()
    monkeypatch.setattr(workflow, "find_models", lambda config: lambda: pair)
    monkeypatch.setattr(duration, "timed_pace", lambda pair: Pace(verifier_step_s=60.0, draft_step_s=1.0))
    (tmp_path / "mine.txt").write_text("Why?\n")
    config = study_config(["prompts=file", f"prompts.path={tmp_path / 'mine.txt'}", f"output_dir={tmp_path / 'out'}"])
    assert workflow.run(config, [PREFILL]) == 0
    assert "measuring takes about " in capsys.readouterr().err
    assert workflow.run(config, [PREFILL]) == 0
    assert "measuring takes" not in capsys.readouterr().err
