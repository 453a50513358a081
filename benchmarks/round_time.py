"""How the time of a round grows with gamma: against its draft steps (draws included) and its verifier pass, alone."""

from __future__ import annotations

import statistics

import torch
from _common import embedded_pair, figure, prompt_ids, seconds, speculated

from specstudy.measure.decode import GenerationSettings
from specstudy.measure.proposers import ModelProposer
from specstudy.measure.sampling import Warp
from specstudy.models.cache import CachedModel
from specstudy.models.load import LanguageModel, Pair

N_TOKENS = 64
GAMMAS = (1, 2, 3, 4, 6, 8)
WARP = Warp(0.7, 0.9)
REPEATS = 5
N_PASSES = 12


def pass_s(model: LanguageModel, ids: torch.Tensor, n: int) -> float:
    """Median time of a pass over n tokens after the prompt."""
    cached = CachedModel(model)
    cached.prefill(ids)
    found = []
    for _ in range(N_PASSES):
        found.append(seconds(lambda: cached.forward(ids[:n], keep=n)))
        cached.rollback(len(ids))
    return statistics.median(found)


def draft_step_s(pair: Pair, ids: torch.Tensor) -> float:
    """Median time to draft one token after the prompt."""
    proposer = ModelProposer(pair.draft)
    proposer.prefill(ids[:-1])
    uniforms = torch.full((1,), 0.5, device=ids.device)
    found = []
    for _ in range(N_PASSES):
        found.append(seconds(lambda: proposer.propose(ids, 1, uniforms, WARP)))
        proposer.keep(len(ids) - 1)
    return statistics.median(found)


def main() -> None:
    pair = embedded_pair()
    ids = prompt_ids(pair)
    tokens = torch.tensor(ids, device=pair.verifier.device)
    settings = GenerationSettings(WARP, N_TOKENS, ())
    rounds: dict[int, list[float]] = {gamma: [] for gamma in GAMMAS}
    parts: dict[int, list[float]] = {gamma: [] for gamma in GAMMAS}
    for seed in range(REPEATS):
        for gamma in GAMMAS:
            full = [r for r in speculated(pair, ids, settings, gamma, seed).rounds if r.n_proposed == gamma]
            rounds[gamma].append(statistics.median(r.draft_s + r.verify_s + r.overhead_s for r in full))
            parts[gamma].append(gamma * draft_step_s(pair, tokens) + pass_s(pair.verifier, tokens, gamma + 1))
    round_s, parts_s = ({gamma: statistics.median(found[gamma]) for gamma in GAMMAS} for found in (rounds, parts))
    for gamma in GAMMAS:
        figure(f"round_over_its_passes_gamma_{gamma}", round_s[gamma] / parts_s[gamma])
    least, most = min(GAMMAS), max(GAMMAS)
    figure("round_growth_over_passes_growth", (round_s[most] - round_s[least]) / (parts_s[most] - parts_s[least]))


if __name__ == "__main__":
    main()
