"""Which texts the self-check looks at beyond the shortest: the study's longest, and those across a boundary."""

from __future__ import annotations

from collections.abc import Sequence

from specstudy.models.cache import sliding_windows
from specstudy.models.load import Pair

MOST_TOKENS = 32
"""New tokens of a checked text."""


def far_prompts(pair: Pair, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> list[list[int]]:
    """Prompts from which a checked text ends where the longest text of the study may end, and, where texts of the study
    may grow across the edge of a sliding window, one that grows across it.

    Each is the start of the longest prompt, which stands in for its own answer too.
    """
    longest = [*max(prompts, key=len)]
    n_new = min(max_new_tokens, MOST_TOKENS)
    last_start = len(longest) + max_new_tokens - n_new
    windows = {window for model in (pair.verifier, pair.draft) for window in sliding_windows(model.module.config)}
    crossing = {
        max(1, window - n_new // 2) for window in windows if window and min(map(len, prompts)) <= window <= last_start
    }
    text = longest * (1 + max_new_tokens // len(longest))
    return [text[:start] for start in sorted({*crossing, last_start})]
