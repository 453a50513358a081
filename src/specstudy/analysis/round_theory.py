"""Tokens a round against what the theory makes of alpha alone: no cost and no clock has a part in it.

The theory's one assumption is that every drafted token passes with the same probability, whatever passed before. The
verifier's own token is counted in every round (an accepted EOS leaves it out), so that a round of n drafted tokens is
expected to give 1 + alpha + ... + alpha^n. n is known before the test, and fewer where an answer nears its longest.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import Codes, Floats
from specstudy.analysis.join import Tables, frame_of, numbers, of_condition
from specstudy.analysis.measures import At
from specstudy.condition import Condition

MEASURED, PREDICTED = "tokens_of_rounds", "tokens_of_rounds_predicted"


def tokens_of_rounds(tables: Tables, suffixes: Mapping[Condition, str]) -> pd.DataFrame:
    """Tokens of all rounds of each prompt, as they were and as predicted from its alpha, at the conditions that the
    theory speaks of (drafts of gamma tokens)."""
    rounds, runs = frame_of(tables, "spec_rounds"), frame_of(tables, "spec_runs")
    columns = {}
    for named in suffixes.items():
        own = of_condition(rounds, named[0])
        if not np.isfinite(numbers(of_condition(runs, named[0])["theoretical_speedup_flops"])).any():
            continue
        codes, names = pd.factorize(own["prompt_id"].astype(object))
        proposed, tested, accepted = (numbers(own[f"n_{name}"]) for name in ("proposed", "tested", "accepted"))
        predicted = predicted_tokens(proposed, tested, accepted, codes.astype(np.intp))
        columns[At(MEASURED, *named)] = pd.Series(np.bincount(codes, accepted + 1), names)
        columns[At(PREDICTED, *named)] = pd.Series(predicted, names)
    return pd.DataFrame(columns)


def predicted_tokens(proposed: Floats, tested: Floats, accepted: Floats, prompts: Codes) -> Floats:
    """Expected tokens of the rounds (rows,) of each prompt (numbered from 0), from its accepted / tested: (prompts,).

    Alpha comes from the same rounds, and the expectation bends with it; a jackknife over rounds takes that out.
    """
    longest = int(proposed.max(initial=0)) + 1
    of_length = np.zeros((int(prompts.max(initial=-1)) + 1, longest))
    np.add.at(of_length, (prompts, proposed.astype(np.intp)), 1)

    def expected(n_accepted: Floats, n_tested: Floats, prompt: Codes) -> Floats:
        alpha = np.where(n_tested > 0, n_accepted, np.nan) / np.where(n_tested > 0, n_tested, 1)
        by_length = np.cumsum(alpha[:, None] ** np.arange(longest), axis=1)
        total: Floats = (of_length[prompt] * by_length).sum(axis=1)
        return total

    n_rounds = of_length.sum(axis=1)
    all_accepted, all_tested = (
        np.bincount(prompts, values, len(n_rounds)).astype(np.float64) for values in (accepted, tested)
    )
    whole = expected(all_accepted, all_tested, np.arange(len(n_rounds)))
    without = expected(all_accepted[prompts] - accepted, all_tested[prompts] - tested, prompts)
    known = np.where(np.isfinite(without), without, whole[prompts])
    jackknifed: Floats = n_rounds * whole - (n_rounds - 1) * np.bincount(prompts, known, len(n_rounds)) / n_rounds
    return jackknifed
