"""How many threads a study computes with: as told, or as a trial finds once for a machine and a pair."""

from pathlib import Path

import pytest
import torch
from tiny_study import configuration

from specstudy.measure import thread_trial
from specstudy.models import device
from specstudy.models.load import Pair
from specstudy.running.threads import set_threads
from specstudy.tables.store import Store


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Two usable cores; what torch is told to compute with."""
    told: list[int] = []
    monkeypatch.setattr(device, "usable_cores", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    return told


def outcome(monkeypatch: pytest.MonkeyPatch, one_s: float, two_s: float) -> None:
    found = thread_trial.StepSeconds({1: one_s, 2: two_s}, {1: 0.002, 2: 0.001})
    monkeypatch.setattr(thread_trial, "try_threads", lambda pair, counts: found)


def test_a_trial_decides_once_for_a_machine_and_a_pair(
    tmp_path: Path, pair: Pair, two_cores: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, store = configuration(tmp_path / "a", {"p": "Hello."}, "execution.threads=null"), Store(tmp_path / "store")
    outcome(monkeypatch, one_s=0.026, two_s=0.017)
    first = set_threads(config, pair, store)
    assert first is not None
    assert (first["threads"], first["verifier_step_s"]) == (2, {"1": 0.026, "2": 0.017})
    outcome(monkeypatch, one_s=0.026, two_s=0.036)  # a busier hour
    assert set_threads(config, pair, Store(tmp_path / "store")) == first
    monkeypatch.setattr(device, "cpu_name", lambda: "another")
    again = set_threads(config, pair, store)
    assert again is not None
    assert again["threads"] == 1
    assert two_cores == [2, 2, 1]


def test_what_is_told_is_taken_without_a_trial(tmp_path: Path, pair: Pair, two_cores: list[int]) -> None:
    config = configuration(tmp_path / "a", {"p": "Hello."}, "execution.threads=3")
    assert set_threads(config, pair, Store(tmp_path / "store")) is None
    assert two_cores == [3]


@pytest.mark.parametrize("content", [b"", b"{", b'{"outcome": 3}', b'{"outcome": {"threads": "2"}}'])
def test_a_damaged_outcome_is_tried_again(tmp_path: Path, content: bytes) -> None:
    store = Store(tmp_path)
    store.keep_trial({"cpu": "here"}, {"threads": 2})
    assert store.kept_trial({"cpu": "here"}) == {"threads": 2}
    assert store.kept_trial({"cpu": "there"}) is None
    (file,) = tmp_path.glob("threads/*.json")
    file.write_bytes(content)
    assert store.kept_trial({"cpu": "here"}) is None
    assert not file.exists()
