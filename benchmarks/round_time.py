"""How the time of a round grows with gamma: against its draft steps (draws included) and its verifier pass, in turn."""

from __future__ import annotations

import statistics

import torch
from _common import embedded_pair, figure, overhead_share, prompt_ids, seconds, speculated

from specstudy.measure.decode import GenerationSettings
from specstudy.measure.proposers import ModelProposer
from specstudy.measure.sampling import Warp
from specstudy.models.cache import CachedModel
from specstudy.models.load import Pair

N_TOKENS = 64
GAMMAS = (1, 2, 3, 4, 6, 8)
WARP = Warp(0.7, 0.9)
REPEATS = 5
N_PASSES = 12


def passes_s(pair: Pair, ids: torch.Tensor, gamma: int) -> float:
    """Median time to draft gamma tokens after the prompt and pass gamma + 1 through the verifier, nothing decided."""
    proposer, verifier = ModelProposer(pair.draft), CachedModel(pair.verifier)
    uniforms = torch.full((gamma,), 0.5, device=ids.device)

    def work() -> None:
        drafted = proposer.propose(ids, gamma, uniforms, WARP.widened()).ids
        verifier.forward(torch.cat([ids[-1:], drafted]), keep=gamma + 1)

    before = len(ids) - 1
    for model in (proposer, verifier):
        model.prefill(ids[:before])
    found = []
    for _ in range(N_PASSES):
        found.append(seconds(work))
        proposer.keep(before)
        verifier.rollback(before)
    return statistics.median(found)


def main() -> None:
    pair = embedded_pair()
    ids = prompt_ids(pair)
    tokens = torch.tensor(ids, device=pair.verifier.device)
    settings = GenerationSettings(WARP, N_TOKENS, ())
    rounds: dict[int, list[float]] = {gamma: [] for gamma in GAMMAS}
    passes: dict[int, list[float]] = {gamma: [] for gamma in GAMMAS}
    shares: dict[int, list[float]] = {gamma: [] for gamma in GAMMAS}
    for seed in range(REPEATS):
        for gamma in GAMMAS:
            full = [r for r in speculated(pair, ids, settings, gamma, seed).rounds if r.n_proposed == gamma]
            shares[gamma].append(overhead_share(full))
            rounds[gamma].append(statistics.median(r.draft_s + r.verify_s + r.overhead_s for r in full))
            passes[gamma].append(passes_s(pair, tokens, gamma))
    round_s, bare_s = ({gamma: statistics.median(found[gamma]) for gamma in GAMMAS} for found in (rounds, passes))
    for gamma in GAMMAS:
        figure(f"round_over_its_passes_gamma_{gamma}", round_s[gamma] / bare_s[gamma])
        figure(f"overhead_share_gamma_{gamma}", statistics.median(shares[gamma]))
    least, most = min(GAMMAS), max(GAMMAS)
    figure("round_growth_over_passes_growth", (round_s[most] - round_s[least]) / (bare_s[most] - bare_s[least]))


if __name__ == "__main__":
    main()
