"""How the time of a round grows with gamma: against its draft steps (draws included) and its verifier pass alone, which
are taken in turn with the rounds, always at the prompt's end: a round's text is up to 64 tokens longer."""

from __future__ import annotations

import statistics

import numpy as np
import torch
from _common import embedded_pair, figure, overhead_share, prompt_ids, seconds

from specstudy.measure.decode import GenerationSettings
from specstudy.measure.proposers import ModelProposer
from specstudy.measure.sampling import Warp
from specstudy.measure.speculative import Round, SpeculativeLoop
from specstudy.models.cache import CachedModel
from specstudy.models.load import Pair

N_TOKENS = 64
GAMMAS = (1, 2, 3, 4, 6, 8)
WARP = Warp(0.7, 0.9)
REPEATS = 5


class Passes:
    """Drafts gamma tokens after the prompt and passes gamma + 1 through the verifier; nothing is decided."""

    def __init__(self, pair: Pair, ids: list[int], gamma: int) -> None:
        self.ids = torch.tensor(ids, device=pair.verifier.device)
        self.proposer, self.verifier = ModelProposer(pair.draft), CachedModel(pair.verifier)
        self.uniforms = torch.full((gamma,), 0.5, device=self.ids.device)
        for model in (self.proposer, self.verifier):
            model.prefill(self.ids[:-1])

    def seconds(self) -> float:
        def work() -> None:
            drafted = self.proposer.propose(self.ids, len(self.uniforms), self.uniforms, WARP.widened()).ids
            self.verifier.forward(torch.cat([self.ids[-1:], drafted]), keep=len(drafted) + 1)

        found = seconds(work)
        self.proposer.keep(len(self.ids) - 1)
        self.verifier.rollback(len(self.ids) - 1)
        return found


def main() -> None:
    pair = embedded_pair()
    ids = prompt_ids(pair)
    settings = GenerationSettings(WARP, N_TOKENS, ())
    passes = {gamma: Passes(pair, ids, gamma) for gamma in GAMMAS}
    found: dict[int, list[tuple[Round, float]]] = {gamma: [] for gamma in GAMMAS}
    for seed in range(REPEATS):
        for gamma in GAMMAS:
            rng = np.random.default_rng(seed)
            loop = SpeculativeLoop(pair.verifier, ModelProposer(pair.draft), ids, settings, gamma, rng)
            loop.prefill()
            found[gamma] += [(r, passes[gamma].seconds()) for r in loop.rounds() if r.n_proposed == gamma]
    round_s = {g: statistics.median(r.draft_s + r.verify_s + r.overhead_s for r, _ in found[g]) for g in GAMMAS}
    passes_s = {g: statistics.median(s for _, s in found[g]) for g in GAMMAS}
    for gamma in GAMMAS:
        figure(f"round_over_its_passes_gamma_{gamma}", round_s[gamma] / passes_s[gamma])
        figure(f"overhead_share_gamma_{gamma}", overhead_share([r for r, _ in found[gamma]]))
    least, most = min(GAMMAS), max(GAMMAS)
    figure("round_growth_over_passes_growth", (round_s[most] - round_s[least]) / (passes_s[most] - passes_s[least]))


if __name__ == "__main__":
    main()
