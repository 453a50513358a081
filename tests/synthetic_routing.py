"""Routing tables to go with the made-up tables of a study: random experts for every token that those have."""

from __future__ import annotations

import numpy as np
import pandas as pd

N_EXPERTS, N_CHOSEN, LAYERS = 6, 2, (0, 1)
SETTING = ["proposer", "stop", "stop_threshold", "temperature", "top_p", "gamma"]
KEYS = ["prompt_id", "category", *SETTING, "repetition"]


def with_routing(tables: dict[str, pd.DataFrame], seed: int = 0) -> dict[str, pd.DataFrame]:
    """The tables with `routing_tokens` and `routing_layers` of the answers and of all rounds."""
    rng = np.random.default_rng(seed)
    decoded = tables["decode_tokens"].rename(columns={"step": "index"})
    decoded = decoded[["prompt_id", "category", "repetition", "index", "token_id"]].assign(
        source="decode", temperature=0.7, top_p=0.9, outcome=None, round=pd.NA
    )
    decoded = decoded.assign(**dict.fromkeys(["proposer", "stop", "stop_threshold", "gamma"]))
    drafted = tables["spec_tokens"]
    drafted = drafted[drafted["kind"] == "draft"][[*KEYS, "round", "index", "token_id", "outcome"]]
    first = drafted.drop_duplicates([*KEYS, "round"]).assign(index=-1, token_id=0, outcome=None)
    verified = pd.concat([drafted.astype(object), first.astype(object)]).assign(source="verify")
    verified["index"] += 1
    fed = pd.concat([decoded.astype(object), verified.astype(object)], ignore_index=True)
    tokens = pd.concat([fed.assign(layer=layer) for layer in LAYERS], ignore_index=True)
    order = rng.random((len(tokens), N_EXPERTS)).argsort(axis=1)[:, :N_CHOSEN]
    tokens["experts"] = order.tolist()
    tokens["gates"] = [[0.6, 0.4]] * len(tokens)
    tokens["gate_entropy_bits"] = rng.uniform(1, 2.5, len(tokens))
    layers = tokens.drop_duplicates(["source", *KEYS, "layer"])[["source", *KEYS, "layer"]].assign(
        n_experts=N_EXPERTS, n_chosen=N_CHOSEN, n_tokens=10, expert_bytes=100.0, other_bytes=2000.0
    )
    layers["mean_probability"] = [[1 / N_EXPERTS] * N_EXPERTS] * len(layers)
    return {**tables, "routing_tokens": tokens, "routing_layers": layers}
