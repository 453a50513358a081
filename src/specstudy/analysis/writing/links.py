"""Attention while writing and what comes of each token: links within answers, their null, and links between prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings, Codes, Estimate, Floats
from specstudy.analysis.correlation import correlate
from specstudy.analysis.correlations import holm
from specstudy.analysis.join import Tables, frame_of, numbers
from specstudy.analysis.means import mean, numbered
from specstudy.analysis.writing.partial import FEWEST_STEPS, N_SHIFTS, answers_of, coefficients
from specstudy.analysis.writing.tokens import ANSWER, COLUMNS, FATE, HELD, OUTCOMES
from specstudy.records import AttentionLink

Key = tuple[str, str, str]
"""Measure, layers, outcome."""


@dataclass(frozen=True)
class Links:
    """Rows of the table `attention_links`; the estimates behind them, and each prompt's coefficient, by measure, layers
    and outcome."""

    rows: list[AttentionLink]
    estimates: dict[Key, Estimate]
    by_prompt: dict[Key, pd.Series]


def attention_links(written: pd.DataFrame, tested: pd.DataFrame, tables: Tables, settings: AnalysisSettings) -> Links:
    """Every measure with every outcome. `written`, `tested`: the frames of `writing.tokens`; of an empty one no row.

    Tokens of which something held is not known (draft entropy, where no model drafts) are left out.
    """
    asked = ((written, OUTCOMES, HELD), (tested, (FATE,), (*HELD, "draft_entropy_bits")))
    found = []
    for tokens, outcomes, held in asked:
        known = tokens if tokens.empty else tokens.dropna(subset=[*held]).reset_index(drop=True)
        if not known.empty:
            found.append(_links(known, outcomes, held, tables, settings))
    return Links(
        [row for links in found for row in links.rows],
        {key: estimate for links in found for key, estimate in links.estimates.items()},
        {key: values for links in found for key, values in links.by_prompt.items()},
    )


def _links(
    tokens: pd.DataFrame, outcomes: Sequence[str], held: Sequence[str], tables: Tables, settings: AnalysisSettings
) -> Links:
    columns, shape = [*COLUMNS.values()], (len(COLUMNS), len(outcomes))
    within = coefficients(answers_of(tokens, columns, outcomes, held), shape, settings.seed, N_SHIFTS)
    group_of = tokens.drop_duplicates("prompt_id").set_index("prompt_id")["group"].astype(object)
    groups = numbered(group_of[within.prompt_ids])[0]
    averages = _prompt_means(tokens, [*columns, *outcomes], within.prompt_ids)
    ln_length = np.log(_lengths(tables, within.prompt_ids))[:, None]
    rows, estimates, by_prompt = [], {}, {}
    for j, outcome in enumerate(outcomes):
        of_outcome: list[AttentionLink] = []
        for i, ((measure, layers), column) in enumerate(COLUMNS.items()):
            estimate = _mean(within.found[:, i, j], groups, settings)
            shifted = _mean(within.shifted[:, i, j], groups, settings)
            x, y = averages[column].to_numpy(), averages[outcome].to_numpy()
            between = correlate(x, y, groups, "spearman", settings, ln_length)
            estimates[measure, layers, outcome] = estimate
            by_prompt[measure, layers, outcome] = pd.Series(within.found[:, i, j], within.prompt_ids)
            of_outcome.append(
                AttentionLink(
                    measure=measure,
                    layers=layers,
                    outcome=outcome,
                    n=estimate.n,
                    n_answers=int(within.n_answers[i, j]),
                    **estimate.row(),
                    p_value=estimate.p_value,
                    p_adjusted=None,
                    **shifted.columns("shifted", "shifted_ci_"),
                    n_between=between.n,
                    **between.columns("between", "between_ci_"),
                    between_null_reason=between.null_reason,
                )
            )
        adjusted = holm([row.p_value for row in of_outcome])
        rows += [replace(row, p_adjusted=p) for row, p in zip(of_outcome, adjusted, strict=True)]
    return Links(rows, estimates, by_prompt)


def _mean(values: Floats, groups: Codes, settings: AnalysisSettings) -> Estimate:
    found = mean(values, settings, groups=groups)
    if found.n:
        return found
    return replace(found, null_reason=f"no answer has {FEWEST_STEPS} tokens in which both vary")


def _prompt_means(tokens: pd.DataFrame, columns: Sequence[str], prompt_ids: Sequence[str]) -> pd.DataFrame:
    """Means over a prompt's tokens, of each answer first, in the order of these prompts."""
    return tokens.groupby(ANSWER)[[*columns]].mean().groupby(level="prompt_id").mean().loc[[*prompt_ids]]


def _lengths(tables: Tables, prompt_ids: Sequence[str]) -> Floats:
    """Tokens of each rendered prompt (prompts,), NaN where it was not counted."""
    counted = frame_of(tables, "prefill_prompts").set_index("prompt_id")["n_tokens"]
    return numbers(counted.reindex([*prompt_ids]))
