"""What a prompt costs a run that has very many of them, in time and memory, at several numbers of prompts.

A tiny pair, so that little of it is the model: prefill of all prompts, then the same command again, which reuses every
result. Each number has a process of its own. `..._growth` is the time of a prompt among the most of them over that of
one among the fewest, 1 where time is linear; `kib_a_prompt` is how much more memory each further prompt takes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from _processes import figure, measured, peak_mib

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

NUMBERS = (1_000, 4_000, 16_000)
WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def prompts(n: int) -> dict[str, str]:
    """Prompts that all differ, of some 15 words, so of some 140 tokens: the tokenizer is one of bytes."""
    return {
        f"prompt-{i:07}": f"Say {' '.join(WORDS[int(digit)] for digit in f'{i:07}')} in as few words." for i in range(n)
    }


def measure(n: int) -> None:
    """Print what n prompts cost."""
    from tiny_study import configuration, tiny_pair  # type: ignore[import-not-found]  # tests/, as above

    from specstudy.running import workflow
    from specstudy.running.stages.prefill import PREFILL

    pair = tiny_pair()
    workflow.find_models = lambda config: lambda: pair
    with tempfile.TemporaryDirectory() as place:
        config = configuration(Path(place), prompts(n), "execution.threads=1", "execution.progress=off")
        for name in ("prefill", "reuse"):
            begun_s = time.perf_counter()
            assert workflow.run(config, [PREFILL]) == 0
            figure(f"{name}_{n}_ms_a_prompt", 1000 * (time.perf_counter() - begun_s) / n)
            figure(f"{name}_{n}_peak_mib", peak_mib())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, help="only measure this number of them, in this process")
    parser.add_argument("--numbers", type=int, nargs="+", default=NUMBERS, help="what is compared instead")
    options = parser.parse_args()
    if options.prompts:
        measure(options.prompts)
        return
    numbers = sorted(options.numbers)
    each = [measured(__file__, "--prompts", n) for n in numbers]
    for name in ("prefill", "reuse"):
        figure(f"{name}_growth", each[-1][f"{name}_ms_a_prompt"] / each[0][f"{name}_ms_a_prompt"])
    more_mib = each[-1]["reuse_peak_mib"] - each[0]["reuse_peak_mib"]
    figure("kib_a_prompt", 1024 * more_mib / (numbers[-1] - numbers[0]))


if __name__ == "__main__":
    main()
