"""Prefill with its attention measured against plain SDPA prefill: time in one process, peak memory in one each.

`prefill_cost.py SIDE N_TOKENS` is such a process: it prefills once, plain or measured, and prints seconds and peak MiB.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch
from _common import embedded_pair, figure, median_ratio, seconds
from _processes import peak_mib

from specstudy.measure.sinks import prefill_sums
from specstudy.models.load import LanguageModel

N_TOKENS = 4096
LONG_TOKENS = 8192
WINDOW = 16
REPEATS = 3


def random_ids(model: LanguageModel, n_tokens: int) -> list[int]:
    """What the tokens say changes no cost."""
    generator = torch.Generator().manual_seed(0)
    ids: list[int] = torch.randint(model.vocabulary, (n_tokens,), generator=generator).tolist()
    return ids


def plain_s(model: LanguageModel, ids: list[int]) -> float:
    tokens = torch.tensor([ids], device=model.device)
    return seconds(lambda: model.module(input_ids=tokens, use_cache=False, logits_to_keep=1))


def measured_s(model: LanguageModel, ids: list[int]) -> float:
    return seconds(lambda: prefill_sums(model, ids, WINDOW))


SIDES = {"plain": plain_s, "measured": measured_s}


def alone(side: str, n_tokens: int) -> tuple[float, float]:
    """(seconds, peak MiB) of a process of its own."""
    command = [sys.executable, str(Path(__file__)), side, str(n_tokens)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    time_s, peak = output.split()[-2:]
    return float(time_s), float(peak)


def main() -> None:
    if len(sys.argv) > 1:
        side, n_tokens = sys.argv[1:]
        verifier = embedded_pair().verifier
        print(SIDES[side](verifier, random_ids(verifier, int(n_tokens))), peak_mib())
        return
    peaks = {side: alone(side, N_TOKENS)[1] for side in SIDES}
    figure("prefill_peak_mib", peaks["measured"])
    figure("prefill_memory_vs_sdpa", peaks["measured"] / peaks["plain"])
    verifier = embedded_pair().verifier
    ids = random_ids(verifier, N_TOKENS)
    figure(
        "prefill_time_vs_sdpa", median_ratio(lambda: measured_s(verifier, ids), lambda: plain_s(verifier, ids), REPEATS)
    )
    time_s, peak = alone("measured", LONG_TOKENS)
    figure(f"prefill_{LONG_TOKENS}_tokens_s", time_s)
    figure(f"prefill_{LONG_TOKENS}_tokens_peak_mib", peak)


if __name__ == "__main__":
    main()
