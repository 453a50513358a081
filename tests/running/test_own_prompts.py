"""Prompt files of one's own through the stages: conversations, odd ids, and files that are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_tokenizers import CHATML_WITH_SYSTEM
from tiny_study import NEW_TOKENS, tiny_pair

from specstudy import open_run
from specstudy.config import StudyConfig
from specstudy.errors import UserError
from specstudy.overrides import study_config
from specstudy.running import workflow
from specstudy.running.stages.prefill import PREFILL
from specstudy.running.tasks import failure

ODD_IDS = ["../../x", "CON", "x" * 300, "👩‍👩‍👧", "/etc/passwd", "."]


@pytest.fixture(autouse=True)
def _tiny_models(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = tiny_pair()
    monkeypatch.setattr(workflow, "find_models", lambda config: lambda: pair)


def configuration(directory: Path, rows: list[dict[str, object]] | bytes) -> StudyConfig:
    path = directory / "mine.jsonl"
    path.write_bytes(rows if isinstance(rows, bytes) else "\n".join(map(json.dumps, rows)).encode())
    place = [f"prompts.path={path}", f"output_dir={directory / 'outputs'}"]
    return study_config(["prompts=file", *place, f"decode.max_new_tokens={NEW_TOKENS}"])


def test_a_conversation_is_measured_and_kept_as_the_model_saw_it(tmp_path: Path) -> None:
    said = [("system", "Be brief."), ("user", "Name one."), ("assistant", "Mars."), ("user", "Its moons?")]
    messages = [{"role": role, "content": content} for role, content in said]
    assert workflow.run(configuration(tmp_path, [{"messages": messages}, {"text": "Why?"}]), [PREFILL]) == 0
    run = open_run(tmp_path / "outputs" / "latest")
    first = run.prefill_prompts.set_index("prompt_id").loc["mine-0001"]
    turns = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in said)
    assert first["rendered_prompt"] == turns + "<|im_start|>assistant\n"
    assert first["rendering_notes"] is None
    tokens = run.prefill_tokens.query("prompt_id == 'mine-0001' and not is_structural")
    written = tokens.groupby("role")["token"].agg("".join).to_dict()
    assert written == {"system": "Be brief.", "user": "Name one.Its moons?", "assistant": "Mars."}
    assert run.manifest["prompts"]["rendering_notes"] == {}


def test_what_the_template_did_is_kept_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = tiny_pair()
    pair.tokenizer.chat_template = CHATML_WITH_SYSTEM
    monkeypatch.setattr(workflow, "find_models", lambda config: lambda: pair)
    rows: list[dict[str, object]] = [{"text": "Why?"}, {"text": "Why not?"}, {"text": "So?", "system": "Be brief."}]
    assert workflow.run(configuration(tmp_path, rows), [PREFILL]) == 0
    run = open_run(tmp_path / "outputs" / "latest")
    note = "the template adds a system text of its own"
    kept = [None if notes is None else list(notes) for notes in run.prefill_prompts["rendering_notes"]]
    assert kept == [[note], [note], None]
    assert run.manifest["prompts"]["rendering_notes"] == {note: 2}


def test_odd_ids_are_data_and_name_no_file(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"prompt_id": prompt_id, "text": "Say a word or two."} for prompt_id in ODD_IDS]
    assert workflow.run(configuration(tmp_path, rows), [PREFILL]) == 0
    run = open_run(tmp_path / "outputs" / "latest")
    assert set(run.prefill_prompts["prompt_id"]) == set(ODD_IDS)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.jsonl", "outputs"]
    assert all(file.name.isascii() and len(file.name) < 100 for file in tmp_path.rglob("*"))


@pytest.mark.parametrize(
    "content", [b"", b"\x1f\x8b\x08", b'{"text": "a"}\n{"text": "\xff"}', b'{"messages": [1], "text": "a"}']
)
def test_a_refused_file_leaves_nothing_behind(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UserError, match=r"mine\.jsonl"):
        workflow.run(configuration(tmp_path, content), [PREFILL])
    assert not (tmp_path / "outputs").exists()


def test_what_is_left_out_of_a_file_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, object]] = [{"turns": ["Why?", "How?"], "answer": "So."}]
    assert workflow.run(configuration(tmp_path, rows), [PREFILL]) == 0
    notes = ["1 of 1 prompts have several turns: the first is the prompt", "not used: answer"]
    said = "".join(f"note: {tmp_path / 'mine.jsonl'}: {note}\n" for note in notes)
    assert capsys.readouterr().err.startswith(said)


def test_the_message_of_a_failure_cannot_command_the_terminal() -> None:
    assert failure("render", "a", ValueError("\x1b[31m no,\u202e\x07 never")).message == "[31m no, never"
