"""Packed linear layers: a pass of the plain models over a pass of the packed ones, and how far their logits differ."""

from __future__ import annotations

import torch
from _common import embedded_pair, figure, median_ratio, prompt_ids, seconds

from specstudy.models.cache import CachedModel
from specstudy.models.load import LanguageModel

N_PASSES = 16
GAMMA = 4
LONG = 512


def main() -> None:
    ours, plain = embedded_pair(), embedded_pair(pack=False)
    text = torch.tensor(prompt_ids(ours), device=ours.verifier.device)

    def passes(model: LanguageModel, n_tokens: int) -> float:
        """Passes over the text's last tokens, one after another, behind all the others."""
        cached = CachedModel(model)
        cached.prefill(text[:-n_tokens])
        return seconds(lambda: [cached.forward(text[-n_tokens:], keep=n_tokens) for _ in range(N_PASSES)])

    def prefill(model: LanguageModel) -> float:
        long = text.repeat(1 + LONG // len(text))[:LONG]
        return seconds(lambda: CachedModel(model).prefill(long))

    figure("verifier_step", median_ratio(lambda: passes(plain.verifier, 1), lambda: passes(ours.verifier, 1)))
    figure(
        f"verifier_pass_over_{GAMMA + 1}",
        median_ratio(lambda: passes(plain.verifier, GAMMA + 1), lambda: passes(ours.verifier, GAMMA + 1)),
    )
    figure("draft_step", median_ratio(lambda: passes(plain.draft, 1), lambda: passes(ours.draft, 1)))
    figure(f"prefill_{LONG}_tokens", median_ratio(lambda: prefill(plain.verifier), lambda: prefill(ours.verifier)))
    for n_tokens in (1, GAMMA + 1, len(text)):
        logits = [CachedModel(pair.verifier).forward(text[:n_tokens], keep=n_tokens) for pair in (ours, plain)]
        figure(f"largest_difference_{n_tokens}_tokens", float((logits[0] - logits[1]).abs().max()))


if __name__ == "__main__":
    main()
