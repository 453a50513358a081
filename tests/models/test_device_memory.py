from __future__ import annotations

from pathlib import Path

import pytest
import torch

from specstudy.models import device as devices
from specstudy.models.device import DeviceMemory, device_memory, is_out_of_memory


def test_cuda_says_free_and_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3, 8))
    assert device_memory(torch.device("cuda")) == DeviceMemory(total_bytes=8, free_bytes=3)


def test_mps_recommends_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 11)
    assert device_memory(torch.device("mps")) == DeviceMemory(total_bytes=11, free_bytes=None)


@pytest.mark.parametrize(("limit", "total"), [(None, 4096 * 1000), (5_000, 5_000), (10**12, 4096 * 1000)])
def test_on_the_cpu_the_container_may_have_less_than_the_machine(
    limit: int | None, total: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices.os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}.__getitem__)
    monkeypatch.setattr(devices, "_container_limit_bytes", lambda: limit)
    monkeypatch.setattr(devices, "_available_bytes", lambda: 7)
    assert device_memory(torch.device("cpu")) == DeviceMemory(total, 7)


@pytest.mark.parametrize(("content", "limit"), [("max\n", None), ("123456\n", 123456), (None, None)])
def test_the_limit_of_a_container(content: str | None, limit: int | None, tmp_path: Path) -> None:
    file = tmp_path / "memory.max"
    if content:
        file.write_text(content)
    assert devices._container_limit_bytes(file) == limit


def test_available_memory_of_linux(tmp_path: Path) -> None:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal:       100 kB\nMemFree:   10 kB\nMemAvailable:    40 kB\n")
    assert devices._available_bytes(file) == 40 * 1024
    assert devices._available_bytes(tmp_path / "nosuch") is None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
            True,
        ),
        (RuntimeError("MPS backend out of memory (MPS allocated: 18 GB)"), True),
        (RuntimeError("shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_memory_that_ran_out(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_the_allocator_of_the_cpu_is_recognised() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(raised.value)
