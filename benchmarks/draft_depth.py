"""What a layer more costs a draft: time of a draft step over that of a verifier step, for 1 to 4 layers and two heads.

Timing does not depend on training, so layers are taken from the verifier as they are.
"""

from __future__ import annotations

import dataclasses
import statistics

import torch
from _common import REPEATS, embedded_pair, figure, prompt_ids, seconds

from specstudy.models.cache import CachedModel
from specstudy.models.early_exit import first_layers
from specstudy.models.load import LanguageModel
from specstudy.models.shallow import FrequentIdsHead

N_STEPS = 24
HEAD_SIZE = 8192


def with_head(model: LanguageModel, n_ids: int) -> LanguageModel:
    """The same layers with an output head over the first `n_ids` ids; the whole one is tied to the embedding."""
    head = FrequentIdsHead(model.module.get_input_embeddings().weight.detach(), torch.arange(n_ids))
    if model.linear_layers == "packed":
        head.pack()
    model.module.lm_head = head
    return dataclasses.replace(model)


def step_s(model: LanguageModel, ids: torch.Tensor) -> float:
    """Median time of a one-token step after the prompt."""
    cached = CachedModel(model)
    cached.prefill(ids)
    head_ids = model.head_ids()
    return statistics.median(seconds(lambda: cached.forward(ids[-1:], 1, head_ids)) for _ in range(N_STEPS))


def main() -> None:
    pair = embedded_pair()
    ids = torch.tensor(prompt_ids(pair), device=pair.verifier.device)
    drafts = {f"{n}_layers_full_head": first_layers(pair.verifier, n) for n in (1, 2, 3, 4)}
    drafts |= {
        f"{n}_layers_{HEAD_SIZE}_ids": with_head(first_layers(pair.verifier, n), HEAD_SIZE) for n in (1, 2, 3, 4)
    }
    ratios: dict[str, list[float]] = {name: [] for name in drafts}
    for _ in range(REPEATS):
        for name, draft in drafts.items():
            ratios[name].append(step_s(draft, ids) / step_s(pair.verifier, ids))
    for name, found in ratios.items():
        figure(f"cost_ratio_{name}", statistics.median(found))


if __name__ == "__main__":
    main()
