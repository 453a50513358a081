"""Designs of mixtures of experts without weights: made-up routing through a real layer with dummy weights, timed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, MixtralConfig

from specstudy import routing_formulas as formulas
from specstudy.errors import UserError
from specstudy.models import device as devices
from specstudy.routing_formulas import ExpertLayerSize, Ids
from specstudy.rules import Section, real, setting, whole

N_TOKENS = 4000
FIT_TOLERANCE, FIT_SWEEPS = 1e-5, 1000
MEMORY_SHARE = 0.8


@dataclass(frozen=True)
class Design(Section):
    """A layer and how it would be routed: popularity of expert r falls as (r + 1)^-skew, and a token keeps each expert
    of the token before it with probability `overlap`. `gamma` is the longest draft that is looked at."""

    NAME: ClassVar[str] = ""
    n_experts: int = setting(64, whole(1, 4096))
    n_chosen: int = setting(8, whole(1, 4096))
    gamma: int = setting(8, whole(1, 12))
    skew: float = setting(0.5, real(0, 10))
    overlap: float = setting(0.3, real(0, 1, below_high=True))
    # Grouped matrix multiplication wants rows of a multiple of 16 bytes.
    hidden: int = setting(512, whole(8, 65536, multiple_of=8))
    expert_hidden: int = setting(1024, whole(8, 65536, multiple_of=8))
    repeats: int = setting(15, whole(1, 10_000))
    seed: int = setting(0, whole(0, 2**32 - 1))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_chosen > self.n_experts:
            raise UserError(f"n_chosen must be at most n_experts={self.n_experts}; got {self.n_chosen}")

    @property
    def size(self) -> ExpertLayerSize:
        """Parameters of the layer, its router included."""
        return ExpertLayerSize(self.hidden, self.expert_hidden, self.n_experts, self.n_chosen)


@dataclass(frozen=True)
class DesignCost:
    """Verifying gamma + 1 tokens: distinct experts routed by the design and as predicted, and the target efficiency of
    this layer alone, by bytes and by the clock, beside tokens that choose uniformly (`_at_random`)."""

    gamma: int
    distinct: float
    uniform: float
    independent: float
    pairwise: float | None
    by_bytes: float
    by_clock: float
    by_bytes_at_random: float
    by_clock_at_random: float


def assignments(
    n_experts: int, n_chosen: int, skew: float, overlap: float, n_tokens: int, rng: np.random.Generator
) -> Ids:
    """Experts of consecutive tokens, int64 [T, k]: a Markov chain. Kept experts first decide for themselves, then the
    free places are drawn by popularity, without repetition."""
    weights = -skew * np.log(np.arange(1, n_experts + 1))
    chosen = np.empty((n_tokens, n_chosen), dtype=np.int64)
    for token in range(n_tokens):
        # The largest of ln w + Gumbel noise are a draw without replacement with weights w.
        order = weights + rng.gumbel(size=n_experts)
        if token:
            order[chosen[token - 1][rng.random(n_chosen) < overlap]] = np.inf
        chosen[token] = np.argsort(-order, kind="stable")[:n_chosen]
    return chosen


def design_costs(design: Design, device: torch.device, dtype: torch.dtype) -> Iterator[DesignCost]:
    """A row for every gamma up to the design's. Windows differ from pass to pass, and kinds of pass take turns.

    Raises UserError for a layer that the device has no memory for.
    """
    _refuse_unless_it_fits(design, device, dtype)
    rng = np.random.default_rng(design.seed)
    n, k = design.n_experts, design.n_chosen
    routed = assignments(n, k, design.skew, design.overlap, N_TOKENS, rng)
    at_random = assignments(n, k, 0.0, 0.0, N_TOKENS, rng)
    used = formulas.on_off(routed, n)
    popularity = formulas.popularity_of(used)
    layer = dummy_experts(design, device, dtype)
    for gamma in range(1, design.gamma + 1):
        width = gamma + 1
        windows = np.moveaxis(np.lib.stride_tricks.sliding_window_view(used, width, axis=0), -1, 1)
        never, distance = formulas.never_on_in_windows(windows, FIT_TOLERANCE, FIT_SWEEPS)
        distinct = float(formulas.distinct_experts(used, width).mean())
        uniform = formulas.expected_distinct_uniform(n, k, width)
        clock, clock_at_random = timed(layer, [routed, at_random], width, design, rng)
        yield DesignCost(
            gamma=gamma,
            distinct=distinct,
            uniform=uniform,
            independent=formulas.expected_distinct_independent(popularity, width),
            pairwise=float((1.0 - never).sum()) if distance.max() < FIT_TOLERANCE else None,
            by_bytes=k / distinct,
            by_clock=clock,
            by_bytes_at_random=k / uniform,
            by_clock_at_random=clock_at_random,
        )


def _refuse_unless_it_fits(design: Design, device: torch.device, dtype: torch.dtype) -> None:
    memory = devices.device_memory(device)
    free_bytes = memory.total_bytes if memory.free_bytes is None else memory.free_bytes
    needed_bytes = design.size.total * torch.finfo(dtype).bits // 8
    if needed_bytes > MEMORY_SHARE * free_bytes:
        raise UserError(
            f"a layer of {needed_bytes / 2**30:.1f} GiB has no room in the {free_bytes / 2**30:.1f} GiB that {device} "
            "has free; make hidden or expert_hidden smaller, which changes the times alone, not the experts used"
        )


def dummy_experts(design: Design, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """The experts of one Mixtral layer as transformers runs them in a model, with random weights."""
    torch.manual_seed(design.seed)
    config = MixtralConfig(
        vocab_size=8,
        hidden_size=design.hidden,
        intermediate_size=design.expert_hidden,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        num_local_experts=design.n_experts,
        num_experts_per_tok=design.n_chosen,
    )
    module = AutoModelForCausalLM.from_config(config, dtype=dtype).to(device).eval().requires_grad_(False)
    experts: nn.Module = module.model.layers[0].mlp.experts
    return experts


@torch.inference_mode()
def timed(layer: nn.Module, routings: list[Ids], width: int, design: Design, rng: np.random.Generator) -> list[float]:
    """For each routing: time of one token's experts over that of `width` tokens' (medians)."""
    weight = next(layer.parameters())
    hidden = torch.randn(width, design.hidden, device=weight.device, dtype=weight.dtype)
    found: list[tuple[list[float], list[float]]] = [([], []) for _ in routings]
    for repeat in range(design.repeats + 1):
        for routing, times in zip(routings, found, strict=True):
            for n_tokens, kept in zip((1, width), times, strict=True):
                start = int(rng.integers(len(routing) - n_tokens))
                ids = torch.tensor(routing[start : start + n_tokens], device=weight.device)
                gates = torch.full(ids.shape, 1.0 / design.n_chosen, device=weight.device, dtype=weight.dtype)
                seconds = _seconds(lambda: layer(hidden[:n_tokens], ids, gates), weight.device)  # noqa: B023 - it is called at once
                kept += [seconds] if repeat else []  # the first of all warms up
    return [statistics.median(one) / statistics.median(passed) for one, passed in found]


def _seconds(work: Callable[[], Tensor], device: torch.device) -> float:
    begun_s = devices.now_s(device)
    work()
    return devices.now_s(device) - begun_s
