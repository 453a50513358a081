"""Made-up `retention_runs` to go with the made-up tables of a study: two answers a prompt, costs as planted."""

from __future__ import annotations

import numpy as np
import pandas as pd

BUDGETS = (0.25, 0.5, 0.75)
POLICIES = ("first_and_last", "last", "random_and_last")
MEASURES = ("mean_expected_accept", "mean_nll_bits", "mean_entropy_bits", "mean_kl_bits", "attention_lost")


def with_retention(
    tables: dict[str, pd.DataFrame], sink_bits: float = 0.5, accept_lost: float = 0.02, seed: int = 0
) -> dict[str, pd.DataFrame]:
    """The tables with a third more KL divergence for each budget less, `sink_bits` more without the first keys, and
    `accept_lost` less acceptance wherever keys are dropped. The first prompt is too short for the smallest budget."""
    rng = np.random.default_rng(seed)
    prompts = tables["prefill_prompts"][["prompt_id", "category"]].drop_duplicates("prompt_id")
    rows = []
    for place, (prompt_id, category) in enumerate(prompts.itertuples(index=False)):
        accept, bits = rng.uniform(0.4, 0.8), rng.uniform(1, 2)
        for repetition in range(2):
            for model in ("draft", "verifier"):
                key = {"prompt_id": prompt_id, "category": category, "repetition": repetition, "model": model}
                sizes = {"n_tokens": 24, "n_kept": 40, "n_dropped": 0, "null_reason": None}
                whole = dict(zip(MEASURES, (accept, bits, bits, 0.0, 0.0), strict=True))
                rows.append({**key, "policy": "all", "budget": 1.0, **sizes, **whole})
                for budget in BUDGETS:
                    for policy in POLICIES:
                        kl = (1 - budget) / 3 + (0 if policy == "first_and_last" else sink_bits)
                        kl += rng.normal(0, 0.02)
                        lost = accept_lost + rng.normal(0, 0.002)
                        costs = (accept - lost, bits + kl, bits, max(kl, 0), 1 - budget)
                        found = dict(zip(MEASURES, costs, strict=True))
                        too_short = place == 0 and budget == BUDGETS[0]
                        found = dict.fromkeys(MEASURES, np.nan) if too_short else found
                        reason = {"null_reason": "too short" if too_short else None}
                        rows.append({**key, "policy": policy, "budget": budget, **sizes, **found, **reason})
    return {**tables, "retention_runs": pd.DataFrame(rows)}
