"""Which key of each head a version of a prompt lowers, and how much attention that really took from it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specstudy.measure.sinks import answer_sums, prefill_sums
from specstudy.models.cache import CachedModel
from specstudy.models.load import LanguageModel, Pair
from specstudy.models.lowered_scores import lowered_scores
from specstudy.prompts.prompt import CONTENT, RenderedPrompt
from specstudy.records import LoweredKeys
from specstudy.seeds import uniforms


def lowered_models(pair: Pair, rendered: RenderedPrompt) -> dict[str, LanguageModel]:
    """The models whose scores the version lowers, by their roles: none where it lowers none."""
    version = rendered.prompt.version
    if version is None or version.lowered is None:
        return {}
    return {"verifier": pair.verifier} | ({"draft": pair.draft} if version.lowered_in_both else {})


def lowered_positions(model: LanguageModel, rendered: RenderedPrompt, seed: int) -> Tensor:
    """The keys to lower in this model as it is, [layers, heads]: of all structural positions the one that gets most of
    the attention that the prompt's own queries pay in the head. Of a control [1, 1], a content position for all heads.

    Raises ValueError for a control of a prompt without content.
    """
    version = rendered.prompt.version
    assert version is not None
    if version.lowered == CONTENT:
        return torch.tensor([[random_content_position(rendered, seed, "lowered key")]], device=model.device)
    structural = torch.tensor([i for i, position in enumerate(rendered.positions) if position.is_structural])
    sums = prefill_sums(model, rendered.token_ids, window=1)
    return structural[sums.column_sums[:, :, structural].argmax(-1)].to(model.device)


def random_content_position(rendered: RenderedPrompt, seed: int, purpose: str) -> int:
    """A content position, the same for every version of a prompt. Raises ValueError where there is no content."""
    content = np.flatnonzero([not position.is_structural for position in rendered.positions])
    if not len(content):
        raise ValueError(f"there is no content position to draw for a {purpose}")
    return int(uniforms(seed, purpose, rendered.prompt.seed_id).choice(content))


def measure_lowered(pair: Pair, rendered: RenderedPrompt, decoded: Sequence[Any], seed: int) -> list[LoweredKeys]:
    """A row for each model that the version alters, over the answers whose rows of `decode_tokens` are `decoded`. To be
    called with the models as they are."""
    rows = []
    answers = [[row.token_id for row in answer] for _, answer in groupby(decoded, lambda row: row.repetition)]
    version = rendered.prompt.version
    for role, model in lowered_models(pair, rendered).items():
        assert version is not None
        assert version.lowered_by is not None
        positions = lowered_positions(model, rendered, seed)
        before = _mass(model, rendered, answers, positions)
        with lowered_scores(model.module, positions, version.lowered_by):
            after = _mass(model, rendered, answers, positions)
        rows.append(
            LoweredKeys(
                **rendered.keys,
                model=role,
                mass_before=before,
                mass_after=after,
                first_position_share=float((positions == 0).double().mean()),
            )
        )
    return rows


def _mass(model: LanguageModel, rendered: RenderedPrompt, answers: Sequence[Sequence[int]], positions: Tensor) -> float:
    """Attention that the answers' tokens pay to each head's position, mean over layers, heads, tokens and answers."""
    cached = CachedModel(model)
    cached.prefill(torch.tensor(rendered.token_ids, device=model.device))
    masses = []
    for answer in answers:
        sums = answer_sums(cached, rendered.token_ids, [*answer]).column_sums.double()
        paid = sums.take_along_dim(positions.cpu()[..., None], -1)
        masses.append(float(paid.mean()) / len(answer))
    return float(np.mean(masses))
