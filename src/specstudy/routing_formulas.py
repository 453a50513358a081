"""Pure mathematics of mixture-of-experts routing: distinct experts of a window, overlap, balance, bytes. NumPy only.

N experts a layer, k of them chosen for each token; a verifier pass reads the distinct experts of its W = gamma + 1
tokens once each.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class ExpertLayerSize:
    """Parameters of one layer of experts: each has two matrices (or three, with a gate), with or without biases."""

    hidden: int
    expert_hidden: int
    n_experts: int
    n_chosen: int
    n_matrices: int = 3
    biases: bool = False

    @property
    def expert(self) -> int:
        """Parameters of one expert."""
        biases = self.hidden + self.expert_hidden * (self.n_matrices - 1) if self.biases else 0
        return self.n_matrices * self.hidden * self.expert_hidden + biases

    @property
    def router(self) -> int:
        """Parameters of the router: one matrix."""
        return self.hidden * self.n_experts

    @property
    def total(self) -> int:
        """All parameters of the layer."""
        return self.router + self.n_experts * self.expert

    @property
    def active(self) -> int:
        """Those that one token uses."""
        return self.router + self.n_chosen * self.expert


def on_off(chosen: Ids, n_experts: int) -> NDArray[np.bool_]:
    """Which experts each token uses: chosen [T, k] -> bool [T, N]."""
    used = np.zeros((len(chosen), n_experts), dtype=bool)
    np.put_along_axis(used, chosen, True, axis=1)
    return used


def distinct_experts(used: NDArray[np.bool_], window: int) -> Floats:
    """Distinct experts of every `window` consecutive tokens: used [T, N] -> [T - window + 1]."""
    if window < 1:
        raise ValueError(f"a window holds at least one token; got {window}")
    if len(used) < window:
        return np.zeros(0)
    windows = np.lib.stride_tricks.sliding_window_view(used, window, axis=0)
    return np.asarray(windows.any(-1).sum(-1), dtype=np.float64)


def expected_distinct_uniform(n_experts: int, n_chosen: int, window: int) -> float:
    """Distinct experts if every token chose k of N uniformly and independently: N (1 - (1 - k/N)^W)."""
    return float(n_experts * (1.0 - (1.0 - n_chosen / n_experts) ** window))


def expected_distinct_independent(popularity: Floats, window: int) -> float:
    """Distinct experts if tokens chose independently with the layer's own popularity [N] (P(expert is on))."""
    return float((1.0 - (1.0 - popularity) ** window).sum())


def popularity_of(used: NDArray[np.bool_]) -> Floats:
    """P(expert is on) for each expert: used [T, N] -> [N]."""
    return np.asarray(used.mean(0), dtype=np.float64)


def fit_pairs(
    single: Floats, pairs: dict[tuple[int, int], Floats], tolerance: float, sweeps: int
) -> tuple[Floats, Floats]:
    """Maximum-entropy joints [R, 2^W] of R experts, and how far [R] each is from the probabilities that were asked.

    Iterative proportional fitting (Deming and Stephan 1940) to P(on at token t), single [W, R], and to
    P(on at a and b) for every a < b, pairs[a, b] [R]. Bit t of a state is token t.
    """
    window, n_rows = single.shape
    if window == 1:
        return np.stack([1.0 - single[0], single[0]], axis=1), np.zeros(n_rows)
    joint = np.full((n_rows, 2**window), 1.0 / 2**window)
    distance = np.full(n_rows, np.inf)
    for _ in range(sweeps):
        far = np.flatnonzero(distance >= tolerance)  # only these are fitted further
        if not len(far):
            break
        fitted = joint[far]
        distance[far] = _sweep(fitted, single[:, far], {pair: both[far] for pair, both in pairs.items()})
        joint[far] = fitted
    return joint, distance


def _sweep(joint: Floats, single: Floats, pairs: dict[tuple[int, int], Floats]) -> Floats:
    """Fit joint [R, 2^W] to every pair once, in place; the largest distance [R] that was found on the way."""
    n_rows, window = len(joint), len(single)
    distance = np.zeros(n_rows)
    for (a, b), both in pairs.items():
        # Axis 2 is token b and axis 4 token a: the state's highest bit comes first.
        cells = joint.reshape(n_rows, 2 ** (window - 1 - b), 2, 2 ** (b - a - 1), 2, 2**a)
        masses = cells.sum((1, 3, 5))
        off_off = 1.0 - single[a] - single[b] + both
        targets = np.array([[off_off, single[a] - both], [single[b] - both, both]]).clip(0.0, 1.0)
        targets = np.moveaxis(targets, -1, 0)
        factors = np.divide(targets, masses, out=np.zeros_like(targets), where=masses > 0)
        cells *= factors[:, None, :, None, :, None]
        distance = np.maximum(distance, np.abs(targets - masses).max((1, 2)))
    return distance


def never_on_in_windows(windows: NDArray[np.bool_], tolerance: float, sweeps: int) -> tuple[Floats, Floats]:
    """P(on for none of W tokens) [R] by the pairs of W-token windows [n, W, R], and how far [R] the fit stayed.

    All probabilities come from the same windows, place by place, so that they agree with each other: a co-activation
    averaged over a sequence has fewer tokens behind it than the popularity, and the two may contradict.
    """
    used = windows.astype(np.float64)
    single = used.mean(0)
    pairs = {(a, b): (used[:, a] * used[:, b]).mean(0) for a, b in itertools.combinations(range(windows.shape[1]), 2)}
    joint, distance = fit_pairs(single, pairs, tolerance, sweeps)
    return joint[:, 0], distance


def overlap_with_previous(used: NDArray[np.bool_]) -> Floats:
    """Share of a token's experts that the token before it used too: used [T, ..., N] -> [T - 1, ...]."""
    return np.asarray((used[1:] & used[:-1]).sum(-1) / used[1:].sum(-1), dtype=np.float64)


def overlap_by_popularity(popularity: Floats) -> Floats:
    """The overlap that popularity alone would give, tokens choosing independently: sum p^2 / sum p; [..., N]."""
    return np.asarray((popularity**2).sum(-1) / popularity.sum(-1))


def load_variation(popularity: Floats) -> Floats:
    """Coefficient of variation of the load: standard deviation over mean, 0 if all are used alike; [..., N]."""
    return np.asarray(popularity.std(-1) / popularity.mean(-1))


def switch_balance(choice_share: Floats, mean_probability: Floats) -> Floats:
    """N * sum f_i P_i of the Switch Transformer (arXiv 2101.03961, eq. 4), [..., N] -> [...]: 1 if balanced.

    choice_share: share of the tokens' choices that go to each expert, summing to 1. mean_probability: mean router
    probability.
    """
    return np.asarray(choice_share.shape[-1] * (choice_share * mean_probability).sum(-1))


def gate_entropy_bits(probabilities: Floats) -> Floats:
    """Entropy of router probabilities over the last axis, in bits; 0 log 0 is 0."""
    logs = np.log2(probabilities, out=np.zeros_like(probabilities), where=probabilities > 0)
    return np.asarray(-(probabilities * logs).sum(-1), dtype=np.float64)


def bytes_read(other_bytes: float, expert_bytes: Floats, on: Floats) -> Floats:
    """Weights that one pass reads: everything but experts, and each layer's distinct experts once.

    expert_bytes [L]: weights of one expert; on [..., L, N]: P(an expert is on for any of the pass's tokens) -> [...].
    """
    return np.asarray(other_bytes + on.sum(-1) @ expert_bytes)
