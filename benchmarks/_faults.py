"""The faults of a public implementation, planted from outside: the product has no switch for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from _common import replaced
from torch import Tensor

from specstudy.measure.proposers import ModelProposer, Proposal
from specstudy.measure.sampling import Warp
from specstudy.measure.speculative import SpeculativeLoop
from specstudy.models.cache import CachedModel


@contextmanager
def stale_draft() -> Iterator[None]:
    """After a full acceptance the last drafted token never reaches the draft's cache: it is missing from there on, and
    every later token lies one place too early."""
    real_propose, real_keep = ModelProposer.propose, ModelProposer.keep

    def propose(self: Any, context: Tensor, n: int, uniforms: Tensor, warp: Warp) -> Proposal:
        seen = self.cached.length
        self.n_lost = len(context) - 1 - seen
        return real_propose(self, torch.cat([context[:seen], context[-1:]]), n, uniforms, warp)

    def keep(self: Any, length: int) -> None:
        real_keep(self, length - getattr(self, "n_lost", 0))

    with replaced(ModelProposer, propose=propose, keep=keep):
        yield


@contextmanager
def stale_verifier() -> Iterator[None]:
    """After a rejection the keys of the rejected token stay in the verifier's cache, and every later token lies one
    place too late."""

    def keep(self: Any, length: int) -> None:
        verifier, wanted = self.verifier, min(length - 1, self.verifier.length)
        n_rejected = verifier.length - wanted
        verifier._cache.crop(-max(0, n_rejected - 1))
        verifier.length = wanted
        self.proposer.keep(length - 1)

    with replaced(SpeculativeLoop, _keep=keep), replaced(CachedModel, check_length=lambda self: None):
        yield
