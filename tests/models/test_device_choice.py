"""Devices and clocks, with stand-ins for the accelerators that this machine lacks."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from specstudy.errors import UserError
from specstudy.models import device as devices

CPU, CUDA, MPS = (torch.device(name) for name in ("cpu", "cuda", "mps"))


def pretend(monkeypatch: pytest.MonkeyPatch, *accelerators: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in accelerators)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in accelerators)


class TestChoice:
    @pytest.mark.parametrize(
        ("accelerators", "chosen"), [((), "cpu"), (("cuda",), "cuda"), (("mps",), "mps"), (("cuda", "mps"), "mps")]
    )
    def test_auto_takes_the_best(
        self, monkeypatch: pytest.MonkeyPatch, accelerators: tuple[str, ...], chosen: str
    ) -> None:
        pretend(monkeypatch, *accelerators)
        assert devices.choose_device("auto") == torch.device(chosen)
        assert devices.choose_device("cpu") == CPU

    @pytest.mark.parametrize("name", ["cuda", "mps"])
    def test_one_that_is_not_here_is_a_line(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        pretend(monkeypatch)
        with pytest.raises(UserError, match=f"execution.device={name} is not available here; choose auto or .* cpu$"):
            devices.choose_device(name)

    @pytest.mark.parametrize("native", [True, False])
    def test_auto_dtype(self, monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
        monkeypatch.setattr(devices, "has_native_bfloat16", lambda: native)
        assert devices.choose_dtype("auto", MPS) == torch.float16
        assert devices.choose_dtype("auto", CUDA) == torch.bfloat16
        assert devices.choose_dtype("auto", CPU) == (torch.bfloat16 if native else torch.float32)

    @pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
    @pytest.mark.parametrize("device", [CPU, CUDA, MPS])
    def test_a_named_dtype_is_taken_on_any_device(self, device: torch.device, name: str) -> None:
        assert devices.choose_dtype(name, device) == getattr(torch, name)


class TestNativeBfloat16:
    @pytest.mark.parametrize("machine", ["x86_64", "AMD64"])
    @pytest.mark.parametrize("supported", [True, False])
    def test_x86(self, monkeypatch: pytest.MonkeyPatch, machine: str, supported: bool) -> None:
        monkeypatch.setattr(devices.platform, "machine", lambda: machine)
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: supported)
        assert devices.has_native_bfloat16() is supported

    @pytest.mark.parametrize(("answer", "expected"), [("1\n", True), ("0\n", False), ("", False)])
    def test_apple(self, monkeypatch: pytest.MonkeyPatch, answer: str, expected: bool) -> None:
        monkeypatch.setattr(devices.platform, "machine", lambda: "arm64")
        monkeypatch.setattr(devices.platform, "system", lambda: "Darwin")
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=answer))
        assert devices.has_native_bfloat16() is expected

    @pytest.mark.parametrize(
        ("features", "expected"), [("fp asimd i8mm bf16", True), ("fp asimd", False), (None, False)]
    )
    def test_other_arm(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, features: str | None, expected: bool
    ) -> None:
        cpuinfo = tmp_path / "cpuinfo"
        if features is not None:
            cpuinfo.write_text(f"processor : 0\nFeatures : {features}\n")
        monkeypatch.setattr(devices.platform, "machine", lambda: "aarch64")
        monkeypatch.setattr(devices.platform, "system", lambda: "Linux")
        monkeypatch.setattr(devices, "Path", lambda _: cpuinfo)
        assert devices.has_native_bfloat16() is expected


class FakeEvent:
    """An event of an accelerator whose own clock runs in milliseconds."""

    def __init__(self, log: list[str], **settings: Any) -> None:
        assert settings == {"enable_timing": True}
        self.log = log
        self.at_ms: float | None = None

    def record(self) -> None:
        self.log.append("record")
        self.at_ms = 250.0 * len(self.log)

    def elapsed_time(self, later: FakeEvent) -> float:
        assert self.at_ms is not None
        assert later.at_ms is not None
        return later.at_ms - self.at_ms


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of the devices and of the clock, in order."""
    asked: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: asked.append(f"wait for {device}"))
    monkeypatch.setattr(torch.mps, "synchronize", lambda: asked.append("wait for mps"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: asked.append("empty cuda"))
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: asked.append("empty mps"))
    monkeypatch.setattr(torch.cuda, "Event", lambda **settings: FakeEvent(asked, **settings))
    monkeypatch.setattr(torch.mps, "Event", lambda **settings: FakeEvent(asked, **settings))

    def clock() -> float:
        asked.append("clock")
        return float(len(asked))

    monkeypatch.setattr(time, "perf_counter", clock)
    return asked


class TestClocks:
    @pytest.mark.parametrize("device", [CUDA, MPS, torch.device("cuda:1")])
    def test_the_clock_is_read_only_after_the_device_has_finished(self, log: list[str], device: torch.device) -> None:
        devices.now_s(device)
        assert log == [f"wait for {device}", "clock"]

    def test_a_cpu_need_not_be_waited_for(self, log: list[str]) -> None:
        devices.now_s(CPU)
        assert log == ["clock"]

    @pytest.mark.parametrize("device", [CUDA, MPS])
    def test_marks_wait_for_nothing_and_are_in_seconds(self, log: list[str], device: torch.device) -> None:
        before = devices.mark(device)
        after = devices.mark(device)
        assert log == ["record", "record"]
        assert before.seconds_until(after) == 0.25

    def test_marks_of_the_cpu_are_its_clock(self, log: list[str]) -> None:
        before = devices.mark(CPU)
        after = devices.mark(CPU)
        assert before.seconds_until(after) == 1.0
        assert log == ["clock", "clock"]

    def test_memory_is_given_back_where_there_is_a_cache_of_it(self, log: list[str]) -> None:
        for device in (CPU, CUDA, MPS):
            devices.empty_cache(device)
        assert log == ["empty cuda", "empty mps"]


def test_a_real_clock_moves_on() -> None:
    before = devices.mark(CPU)
    first_s = devices.now_s(CPU)
    time.sleep(0.01)
    elapsed_s = before.seconds_until(devices.mark(CPU))
    assert 0.01 <= elapsed_s < 10.0
    assert devices.now_s(CPU) - first_s >= 0.01


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 17 GB)"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), True),
        (RuntimeError("shape mismatch"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_memory_that_ran_out(error: Exception, expected: bool) -> None:
    assert devices.is_out_of_memory(error) is expected
