"""Everything that depends on the device: choice, precision, synchronisation, clocks, memory."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from specstudy.errors import UserError

X86 = ("x86_64", "AMD64")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def usable_cores() -> int:
    """CPU cores that this process may use: fewer than the machine's where it is confined to some of them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_name(file: Path = Path("/proc/cpuinfo")) -> str:
    """What the CPU calls itself, or its kind of instructions."""
    lines = file.read_text().splitlines() if file.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def available_devices() -> list[str]:
    """Names of the devices that torch can use here, best first."""
    found = ["cpu"]
    if torch.cuda.is_available():
        found.insert(0, "cuda")
    if torch.backends.mps.is_available():
        found.insert(0, "mps")
    return found


def choose_device(name: str) -> torch.device:
    """`auto` is mps, cuda or cpu, in that order of preference. Raises UserError for a device that is not here."""
    available = available_devices()
    if name == "auto":
        return torch.device(available[0])
    if name not in available:
        raise UserError(f"execution.device={name} is not available here; choose auto or one of {', '.join(available)}")
    return torch.device(name)


def has_native_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 matrices in hardware; without, float32 is faster and more precise."""
    if platform.machine() in X86:
        return bool(torch.cpu._is_avx512_bf16_supported())
    if platform.system() == "Darwin":
        command = ["sysctl", "-n", "hw.optional.arm.FEAT_BF16"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() == "1"
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.exists() and " bf16" in cpuinfo.read_text()


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto` is float16 on MPS, bfloat16 on CUDA and on CPUs with native bfloat16, else float32."""
    if name != "auto":
        return DTYPES[name]
    if device.type == "mps":
        return torch.float16
    if device.type == "cuda" or has_native_bfloat16():
        return torch.bfloat16
    return torch.float32


def multiplies_packed_weights(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether weights in oneDNN's own order are known to be multiplied faster here: x86 CPUs, bfloat16 where it is in
    hardware, float32 where vectors are those of AVX2."""
    if device.type != "cpu" or platform.machine() not in X86:
        return False
    is_best = {torch.bfloat16: has_native_bfloat16, torch.float32: _vectors_are_avx2}.get(dtype)
    operators = ("_reorder_linear_weight", "_linear_pointwise")
    return (
        is_best is not None
        and is_best()
        and torch.backends.mkldnn.is_available()
        and all(hasattr(torch.ops.mkldnn, name) for name in operators)
    )


def _vectors_are_avx2() -> bool:
    return torch.backends.cpu.get_cpu_capability() == "AVX2"


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished everything asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def empty_cache(device: torch.device) -> None:
    """Give unused memory back, so that one long prompt does not starve the next."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type == "mps":
        torch.mps.empty_cache()


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes that a device lets one program use, and how many are free now (None where the system does not say)."""

    total_bytes: int
    free_bytes: int | None


def device_memory(device: torch.device) -> DeviceMemory:
    """Memory of a device; on the CPU that of the machine, or of the container if that is less."""
    if device.type == "cuda":
        free_bytes, total_bytes = torch.cuda.mem_get_info(device)
        return DeviceMemory(total_bytes, free_bytes)
    if device.type == "mps":
        return DeviceMemory(torch.mps.recommended_max_memory(), None)
    physical_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return DeviceMemory(min(physical_bytes, _container_limit_bytes() or physical_bytes), _available_bytes())


def _container_limit_bytes(file: Path = Path("/sys/fs/cgroup/memory.max")) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # not Linux, or "max"
        return None


def _available_bytes(file: Path = Path("/proc/meminfo")) -> int | None:
    """What Linux could give to a program without swapping, its disk caches included."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    kibibytes = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return None if kibibytes is None else int(kibibytes) * 1024


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out. CUDA has a type for it; the CPU's and MPS' allocators only say so in words."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    words = str(error).lower()
    return isinstance(error, RuntimeError) and ("can't allocate memory" in words or "out of memory" in words)


def out_of_memory_line(error: Exception) -> str:
    """What to say and to change where memory ran out (`is_out_of_memory`)."""
    which = "this machine"
    if isinstance(error, torch.OutOfMemoryError):
        which = "the GPU (nvidia-smi shows who else uses it)"
    elif "mps" in str(error).lower():
        which = "the GPU, which it shares with all open programs"
    return (
        f"the memory of {which} ran out; smaller models, shorter prompts, a smaller decode.max_new_tokens or "
        "execution.dtype=bfloat16 (or float16) need less, and make doctor estimates how much"
    )


def now_s(device: torch.device) -> float:
    """A monotonic clock in seconds, read after the device has finished."""
    synchronize(device)
    return time.perf_counter()


@dataclass(frozen=True)
class Mark:
    """A point in the device's own stream of work: an event where there are events, else the clock."""

    at_s: float = 0.0
    event: Any = None  # torch.cuda.Event or torch.mps.Event

    def seconds_until(self, later: Mark) -> float:
        """Seconds from here to `later`; ask only after the device has passed both."""
        if self.event is None:
            return later.at_s - self.at_s
        return float(self.event.elapsed_time(later.event)) / 1000.0


def mark(device: torch.device) -> Mark:
    """Note a point in time without waiting for the device."""
    if device.type == "cpu":
        return Mark(at_s=time.perf_counter())
    event = torch.cuda.Event(enable_timing=True) if device.type == "cuda" else torch.mps.Event(enable_timing=True)
    event.record()
    return Mark(event=event)
