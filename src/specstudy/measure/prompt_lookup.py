"""Drafting without a model: what followed the same few tokens earlier in the text (prompt lookup, Saxena 2023)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specstudy.measure.proposers import Proposal, no_proposal
from specstudy.measure.sampling import Warp


def continuation(text: Sequence[int], n: int, longest_match: int) -> list[int]:
    """Up to n tokens that followed the latest earlier occurrence of the text's last tokens.

    The longest match counts, from `longest_match` tokens down to one; empty where not even the last token occurred.
    """
    for size in range(min(longest_match, len(text) - 1), 0, -1):
        pattern = list(text[-size:])
        for start in range(len(text) - size - 1, -1, -1):
            if list(text[start : start + size]) == pattern:
                return list(text[start + size : start + size + n])
    return []


class PromptLookup:
    """Copies spans of the context. q is a one-hot: what it proposes, it proposes with certainty."""

    model = None

    def __init__(self, vocabulary: int, longest_match: int) -> None:
        self._vocabulary = vocabulary
        self._longest_match = longest_match

    def prefill(self, ids: Tensor) -> None:
        """There is nothing to remember: the text itself is searched."""

    def propose(self, context: Tensor, n: int, uniforms: Tensor, warp: Warp) -> Proposal:
        """The copied span, however long up to n. Waits for the device: the search runs on the host."""
        copied = continuation(context.tolist(), n, self._longest_match) if n else []
        if not copied:
            return no_proposal(context, self._vocabulary)
        ids = torch.tensor(copied, device=context.device)
        q = torch.nn.functional.one_hot(ids, self._vocabulary).float()
        certain = torch.ones(len(copied), dtype=torch.bool, device=context.device)
        return Proposal(ids, q, torch.zeros_like(q[:, 0]), q.log(), certain, False, [])

    def keep(self, length: int) -> None:
        """Nothing is cached."""
