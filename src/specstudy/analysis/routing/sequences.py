"""Routing as arrays: which experts were on, token by token, in every sequence and layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specstudy.analysis.bootstrap import Codes, Floats
from specstudy.analysis.join import Tables, frame_of, group_codes, numbers, of_condition, rows_of
from specstudy.condition import Condition

Used = NDArray[np.bool_]


@dataclass(frozen=True)
class Sequence:
    """Tokens that the verifier was fed one after the other: an answer, or one pass of a round.

    `prompt` is the place of the prompt among those of the run. `used` bool [T, L, N]; `gate_entropy_bits` float64
    [T, L]; `steps` int [T]: the column `index`; `outcomes`: accepted, rejected, untested or None.
    """

    prompt: int
    used: Used
    gate_entropy_bits: Floats
    steps: Codes
    outcomes: tuple[str | None, ...]
    repetition: int


@dataclass(frozen=True)
class Layers:
    """The layers with experts. `expert_bytes` float64 [L]; `other_bytes`: weights of everything else that is read."""

    indices: list[int]
    n_experts: int
    n_chosen: int
    expert_bytes: Floats
    other_bytes: float


def layers_of(tables: Tables) -> Layers:
    """What `routing_layers` says of the model; the same in all of its generations."""
    frame = frame_of(tables, "routing_layers").drop_duplicates("layer").sort_values("layer")
    return Layers(
        indices=[int(layer) for layer in frame["layer"]],
        n_experts=int(frame["n_experts"].iloc[0]),
        n_chosen=int(frame["n_chosen"].iloc[0]),
        expert_bytes=numbers(frame["expert_bytes"]),
        other_bytes=float(frame["other_bytes"].iloc[0]),
    )


def prompt_ids(tables: Tables) -> list[str]:
    """The prompts that have routing, in order."""
    return sorted(set(frame_of(tables, "routing_layers")["prompt_id"].astype(str)))


def prompt_groups(tables: Tables) -> Codes:
    """The group of each of these prompts, numbered from 0: what intervals draw together."""
    return group_codes(tables, pd.Index(prompt_ids(tables)))


def answers(tables: Tables, layers: Layers) -> list[Sequence]:
    """The verifier's own answers."""
    tokens = frame_of(tables, "routing_tokens")
    decoded = tokens[(tokens["source"] == "decode").to_numpy(dtype=bool)]
    return _sequences(decoded, ["prompt_id", "repetition"], layers, prompt_ids(tables))


def passes(tables: Tables, layers: Layers, condition: Condition) -> list[Sequence]:
    """The verifier's passes in the rounds of one condition."""
    tokens = frame_of(tables, "routing_tokens")
    verified = of_condition(tokens[(tokens["source"] == "verify").to_numpy(dtype=bool)], condition)
    return _sequences(verified, ["prompt_id", "repetition", "round"], layers, prompt_ids(tables))


def _sequences(tokens: pd.DataFrame, keys: list[str], layers: Layers, prompts: list[str]) -> list[Sequence]:
    place = {prompt_id: number for number, prompt_id in enumerate(prompts)}
    n_layers, found = len(layers.indices), []
    for _, rows in tokens.sort_values([*keys, "index", "layer"]).groupby(keys, sort=False):
        chosen = np.stack(rows["experts"].to_list()).astype(np.int64)
        used = np.zeros((len(rows), layers.n_experts), dtype=bool)
        np.put_along_axis(used, chosen, True, axis=1)
        firsts = list(rows_of(rows.iloc[::n_layers]))
        found.append(
            Sequence(
                prompt=place[str(firsts[0].prompt_id)],
                used=used.reshape(-1, n_layers, layers.n_experts),
                gate_entropy_bits=numbers(rows["gate_entropy_bits"]).reshape(-1, n_layers),
                steps=rows["index"].to_numpy(dtype=np.intp)[::n_layers],
                outcomes=tuple(None if pd.isna(row.outcome) else str(row.outcome) for row in firsts),
                repetition=int(firsts[0].repetition),
            )
        )
    return found
