from __future__ import annotations

import json
import os
import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from specstudy.errors import UserError
from specstudy.tables import environment, manifest


def test_sections_are_set_entry_by_entry_and_stand_in_a_fixed_order(tmp_path: Path) -> None:
    manifest.update(tmp_path, "config", {"spec": {"gamma": [4]}})
    manifest.update(tmp_path, "stages", {"prefill": {"n_done": 3, "seconds": 1.5}})
    manifest.update(tmp_path, "stages", {"decode": {"n_done": 2}})
    manifest.update(tmp_path, "stages", {"decode": {"n_done": 3, "n_failed": 0}})
    written = manifest.read(tmp_path)
    assert written["stages"] == {"prefill": {"n_done": 3, "seconds": 1.5}, "decode": {"n_done": 3, "n_failed": 0}}
    assert list(written) == ["schema_version", "stages", "config"]
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), Path("here"), {1, 2}])
def test_what_json_cannot_say_is_refused_and_changes_nothing(tmp_path: Path, value: object) -> None:
    manifest.update(tmp_path, "seeds", {"seed": 0})
    with pytest.raises((TypeError, ValueError)):
        manifest.update(tmp_path, "seeds", {"seed": value})
    assert manifest.read(tmp_path)["seeds"] == {"seed": 0}


def test_an_unknown_section_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stage"):
        manifest.update(tmp_path, "stage", {})


def test_text_is_readable_and_undecodable_file_names_are_kept(tmp_path: Path) -> None:
    manifest.update(tmp_path, "prompts", {"name": "naïve", "path": "odd-\udcff.jsonl"})
    assert "naïve" in (tmp_path / "manifest.json").read_text(encoding="utf-8")
    assert manifest.read(tmp_path)["prompts"] == {"name": "naïve", "path": "odd-\udcff.jsonl"}


def test_a_run_is_finished_from_finish_to_the_next_start(tmp_path: Path) -> None:
    assert not manifest.is_finished({})
    manifest.start(tmp_path)
    assert not manifest.is_finished(manifest.read(tmp_path))
    manifest.finish(tmp_path)
    written = manifest.read(tmp_path)
    assert manifest.is_finished(written)
    start, end = (datetime.fromisoformat(written["time"][name]) for name in ("start", "end"))
    assert start.tzinfo is not None
    assert start <= end
    assert written["environment"]["python"]
    assert written["environment"]["packages"]["pyarrow"]
    manifest.start(tmp_path)
    assert not manifest.is_finished(manifest.read(tmp_path))


def test_a_command_that_measures_nothing_leaves_when_and_under_which_load_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(hour: int) -> dict[str, object]:
        monkeypatch.setattr(manifest, "now", lambda: f"2026-01-05T{hour}:00:00+00:00")
        monkeypatch.setattr(manifest, "load_average", lambda: float(hour))
        return manifest.start(tmp_path)

    manifest.measuring(tmp_path, start(10))
    manifest.finish(tmp_path)
    first = manifest.read(tmp_path)["time"]
    began = start(11)
    assert manifest.read(tmp_path)["time"] == {**first, "end": None}
    manifest.measuring(tmp_path, began)
    assert manifest.read(tmp_path)["time"] == {"start": "2026-01-05T11:00:00+00:00", "load_average": 11.0, "end": None}


OF_ANOTHER_SHAPE: list[dict[str, object]] = [
    {"stages": {"decode": 5}},
    {"self_checks": {"speculate": ["passed"]}},
    {"self_checks": {"speculate": {"passed": "yes"}}},
    {"self_checks": {"speculate": {}}},
    {"models": {"draft": None}},
    {"models": {"draft": {"distillation": [1]}}},
    {"measured_with": {"decode": "then"}},
    {"time": {"start": 5}},
    {"time": {"end": True}},
    {"config": {"models": "smollm2"}},
]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"stages": []}', b"\xff", *(json.dumps(shape).encode() for shape in OF_ANOTHER_SHAPE)],
)
def test_a_damaged_manifest_is_one_line_and_does_not_stop_the_next_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(UserError, match=r"cannot read .*manifest\.json") as raised:
        manifest.read(tmp_path)
    assert "\n" not in str(raised.value)
    manifest.update(tmp_path, "seeds", {"seed": 0})
    assert manifest.read(tmp_path)["seeds"] == {"seed": 0}
    assert len(caplog.records) == 1
    assert (tmp_path / "manifest.json.rejected").read_bytes() == content


@pytest.mark.parametrize("written", [{}, {"config": {}}])
def test_a_manifest_without_configuration_is_one_line(written: dict[str, object]) -> None:
    with pytest.raises(UserError, match="holds no configuration; run the study again"):
        manifest.configuration(written)
    assert manifest.configuration({"config": {"seed": 3}}) == {"seed": 3}


def test_no_manifest_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no manifest\.json"):
        manifest.read(tmp_path)


def git(directory: Path, *arguments: str) -> str:
    identity = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    command = ["git", "-c", "commit.gpgsign=false", "-c", "core.hooksPath=/dev/null", *arguments]
    done = subprocess.run(command, cwd=directory, env=os.environ | identity, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_git_state_is_the_commit_and_whether_anything_differs(tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    source.write_text("a = 1\n")
    assert environment.git_state(source) is None
    git(tmp_path, "init", "--quiet")
    assert environment.git_state(source) is None
    git(tmp_path, "add", "source.py")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert environment.git_state(source) == {"commit": commit, "dirty": False}
    source.write_text("a = 2\n")
    assert environment.git_state(source) == {"commit": commit, "dirty": True}
    source.write_text("a = 1\n")
    (tmp_path / "new.py").write_text("")
    assert environment.git_state(source) == {"commit": commit, "dirty": True}
    assert environment.git_state(tmp_path / "new.py") is None


def test_without_git_there_is_no_git_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.git_state() is None


def test_the_environment_can_be_written_as_json() -> None:
    assert json.loads(json.dumps(environment.environment(), allow_nan=False)) == environment.environment()
