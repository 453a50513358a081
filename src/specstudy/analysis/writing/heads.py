"""Which attention heads go with the verifier's entropy: chosen on some prompts, tested on others."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings, Estimate, Floats
from specstudy.analysis.correlations import holm
from specstudy.analysis.join import Tables, frame_of
from specstudy.analysis.means import mean
from specstudy.analysis.writing.partial import Answer, coefficients
from specstudy.analysis.writing.tokens import ANSWER, HELD
from specstudy.records import AttentionHeadLink

OUTCOME = "entropy_bits"
MEASURES = ("sink_mass", "previous_mass", "attention_entropy")
BY_LINK, BY_MASS = "link", "mass"


@dataclass(frozen=True)
class HeadLinks:
    """Rows of the table `attention_head_links`, and the estimates of chosen heads by measure and way of choosing."""

    rows: list[AttentionHeadLink]
    chosen: dict[tuple[str, str], Estimate]


def attention_head_links(written: pd.DataFrame, tables: Tables, settings: AnalysisSettings) -> HeadLinks:
    """Every head over all prompts, then the chosen ones over those that test; nothing where no heads were recorded.

    `written`: the frame of `tokens.written_tokens`. Prompts, or groups of them, take turns in the order of ids: the
    first, third, ... choose, the others test. By link the head with the strongest mean correlation is chosen; by mass
    the one that pays the token before most attention (as RAUQ does in each layer: Vazhentsev et al. 2025).
    """
    heads = frame_of(tables, "decode_attention_heads")
    if heads.empty or written.empty:
        return HeadLinks([], {})
    heads = heads.sort_values([*ANSWER, "layer", "head"], kind="stable")
    places = [*heads[["layer", "head"]].drop_duplicates().sort_values(["layer", "head"]).itertuples(index=False)]
    shape = (len(MEASURES) * len(places), 1)
    found = coefficients(_answers(heads, written, tables), shape, settings.seed)
    by_head = found.found.reshape(-1, len(MEASURES), len(places))
    group_of = written.drop_duplicates("prompt_id").set_index("prompt_id")["group"]
    groups = pd.factorize(group_of[found.prompt_ids])[0].astype(np.intp)
    rows: list[AttentionHeadLink] = []
    chosen: dict[tuple[str, str], Estimate] = {}
    for place, measure in enumerate(MEASURES):
        estimates = [mean(values, settings, groups=groups) for values in by_head[:, place].T]
        adjusted = holm([e.p_value for e in estimates])
        for (layer, head), e, p in zip(places, estimates, adjusted, strict=True):
            rows.append(_row(measure, "", (layer, head), e, p, None))
    chooses = groups % 2 == 0
    for measure, how, best in _choices(by_head[chooses], _previous_masses(heads, found.prompt_ids)[chooses]):
        values = by_head[:, MEASURES.index(measure), best]
        chosen[measure, how] = mean(values[~chooses], settings, groups=groups[~chooses])
        of_choosing = mean(values[chooses], settings).value
        rows.append(_row(measure, how, places[best], chosen[measure, how], None, of_choosing))
    return HeadLinks(rows, chosen)


def _answers(heads: pd.DataFrame, written: pd.DataFrame, tables: Tables) -> Iterator[Answer]:
    """Each answer's tokens with all heads, measure by measure: x (T, measures * heads)."""
    n_prompt_tokens: dict[Hashable, int] = (
        frame_of(tables, "decode_runs").set_index(ANSWER)["n_prompt_tokens"].to_dict()
    )
    tokens = dict(iter(written.groupby(ANSWER)))
    for key, of_answer in heads.groupby(ANSWER):
        if key not in tokens:
            continue
        rows, first = tokens[key], of_answer.iloc[0]
        step = rows["step"].to_numpy(dtype=np.intp)
        sink, previous, bits = (
            np.stack([*of_answer[name]]).astype(np.float64)[:, step]
            for name in ("sink_mass", "previous_mass", "attention_entropy_bits")
        )
        entropy = bits / np.log2(n_prompt_tokens[key] + step)
        x = np.concatenate([sink, previous, entropy]).T
        y, held = (rows[[*names]].to_numpy(dtype=np.float64) for names in ((OUTCOME,), HELD))
        yield Answer(str(first["prompt_id"]), int(first["repetition"]), x, y, held)


def _previous_masses(heads: pd.DataFrame, prompt_ids: list[str]) -> Floats:
    """Mean attention that each head pays to the token before: (prompts, heads)."""
    masses = heads.assign(mass=[float(np.mean(steps, dtype=np.float64)) for steps in heads["previous_mass"]])
    by_prompt = masses.groupby(["prompt_id", "layer", "head"])["mass"].mean().unstack(["layer", "head"])
    return by_prompt.sort_index(axis=1).loc[prompt_ids].to_numpy(dtype=np.float64)


def _choices(by_head: Floats, masses: Floats) -> Iterator[tuple[str, str, int]]:
    """Measure, way of choosing, and the head, from correlations (prompts, measures, heads) and masses (prompts, heads)
    of the prompts that choose; a measure without any correlation chooses none."""
    known = np.isfinite(by_head)
    means = np.where(known, by_head, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    for measure, of_heads in zip(MEASURES, means, strict=True):
        if of_heads.any():
            yield measure, BY_LINK, int(np.abs(of_heads).argmax())
    if known[:, MEASURES.index("previous_mass")].any():
        yield "previous_mass", BY_MASS, int(masses.mean(axis=0).argmax())


def _row(
    measure: str, how: str, place: tuple[int, int], e: Estimate, p_adjusted: float | None, of_choosing: float | None
) -> AttentionHeadLink:
    return AttentionHeadLink(
        measure=measure,
        chosen_by=how,
        layer=int(place[0]),
        head=int(place[1]),
        n=e.n,
        **e.row(),
        p_value=e.p_value,
        p_adjusted=p_adjusted,
        estimate_where_chosen=of_choosing,
    )
