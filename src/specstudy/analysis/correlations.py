"""The families of correlations that the study reports, as records.

Subsets at prompt level: `all`; each category; `within_category` (category held constant); `given_length` (ln n_tokens
held constant); `within_category_given_length` (both); `given_confounders` (these two and prompt_nll_bits);
`given_confounders_not_repetitive` (the same without answers that repeat themselves). At token
level: `all`, each category, and `within_prompt`, where the estimate is the median over prompts of the coefficient
inside one prompt. Holm's adjustment runs within one level, subset and method.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings, Estimate, Floats
from specstudy.analysis.correlation import Method, correlate
from specstudy.analysis.means import numbered
from specstudy.analysis.measures import (
    ACCEPTANCE_MEASURES,
    ANSWER_ACCEPTANCE_MEASURE,
    ANSWER_MEASURES,
    CONTEXT_MEASURES,
    DRAFT_ENTROPY_MEASURE,
    ENTROPY_MEASURE,
    At,
    Key,
)
from specstudy.analysis.within import median_within_prompt
from specstudy.condition import Condition
from specstudy.records import Correlation

METHODS: tuple[Method, ...] = ("pearson", "spearman")


class Pair(NamedTuple):
    """What a correlation is of."""

    level: str
    subset: str
    x: str
    y: Key
    method: str


def chain_pairs(suffixes: Mapping[Condition, str]) -> list[tuple[str, Key]]:
    """Every pair of the chain: context, then either entropy, with what comes after it.

    Both entropies and the first acceptance are of one text, the verifier's own answers; acceptance at a condition is
    that of another text, the speculative answer.
    """
    elsewhere = [At(measure, *named) for named in suffixes.items() for measure in ACCEPTANCE_MEASURES]
    acceptance: list[Key] = [ANSWER_ACCEPTANCE_MEASURE, *elsewhere]
    return [
        *((context, of_answer) for context in CONTEXT_MEASURES for of_answer in ANSWER_MEASURES),
        *((entropy, accepted) for entropy in (ENTROPY_MEASURE, DRAFT_ENTROPY_MEASURE) for accepted in acceptance),
        *((context, accepted) for context in CONTEXT_MEASURES for accepted in elsewhere),
    ]


CONFOUNDERS = ("n_tokens", "prompt_nll_bits")


def prompt_subsets(prompts: pd.DataFrame) -> dict[str, tuple[pd.DataFrame, Floats | None]]:
    """The subsets of a prompt frame: its rows, and the covariates (rows, k) that are held constant, None for none."""
    dummies = pd.get_dummies(prompts["category"], drop_first=True).to_numpy(dtype=np.float64)
    log_length = np.log(prompts[["n_tokens"]].to_numpy(dtype=np.float64))
    surprisal = prompts[["prompt_nll_bits"]].to_numpy(dtype=np.float64)
    subsets: dict[str, tuple[pd.DataFrame, Floats | None]] = {
        "all": (prompts, None),
        "within_category": (prompts, dummies),
        "given_length": (prompts, log_length),
        "within_category_given_length": (prompts, np.column_stack([dummies, log_length])),
        "given_confounders": (prompts, np.column_stack([dummies, log_length, surprisal])),
    }
    return subsets | {str(category): (rows, None) for category, rows in prompts.groupby("category")}


def prompt_correlations(
    prompts: pd.DataFrame, distinct: pd.DataFrame, suffixes: Mapping[Condition, str], settings: AnalysisSettings
) -> Iterator[tuple[Pair, Estimate]]:
    """All pairs of the chain on every subset of a prompt frame, not yet adjusted; `distinct` is the frame without
    answers that repeat themselves."""
    subsets = prompt_subsets(prompts)
    subsets["given_confounders_not_repetitive"] = prompt_subsets(distinct)["given_confounders"]
    for subset, (rows, covariates) in subsets.items():
        groups = numbered(rows["group"])[0]
        for x, y in chain_pairs(suffixes):
            for method in METHODS:
                a, b = rows[x].to_numpy(), rows[y].to_numpy()
                n = int((np.isfinite(a) & np.isfinite(b)).sum())
                held = (x == "n_tokens" and "length" in subset) or ("given_confounders" in subset and x in CONFOUNDERS)
                if n and held:
                    # Pearson's would be left with what is not linear in the logarithm.
                    estimate = Estimate(n, null_reason=f"{x} is held constant")
                else:
                    estimate = correlate(a, b, groups, method, settings, covariates)
                yield Pair("prompt", subset, x, y, method), estimate


def token_correlations(
    tokens: pd.DataFrame, pairs: list[tuple[str, Key]], settings: AnalysisSettings
) -> Iterator[tuple[Pair, Estimate]]:
    """Pairs (x, y) over tokens, with groups of prompts as clusters, not yet adjusted."""
    codes, groups = (numbered(tokens[key])[0] for key in ("prompt_id", "group"))
    categories = tokens["category"].astype(object).to_numpy()
    subsets = {"all": np.ones(len(tokens), dtype=bool)}
    subsets |= {str(category): categories == category for category in sorted(set(categories))}
    for x, y in pairs:
        a, b = tokens[x].to_numpy(), tokens[y.measure if isinstance(y, At) else y].to_numpy()
        for method in METHODS:
            for subset, rows in subsets.items():
                estimate = correlate(a[rows], b[rows], groups[rows], method, settings)
                yield Pair("token", subset, x, y, method), estimate
            inside = median_within_prompt(a, b, codes, method, settings, groups)
            yield Pair("token", "within_prompt", x, y, method), inside


def _record(pair: Pair, estimate: Estimate, p_adjusted: float | None) -> Correlation:
    named: dict[str, Any] = pair._asdict() | {"y": str(pair.y)}
    return Correlation(**named, n=estimate.n, **estimate.row(), p_value=estimate.p_value, p_adjusted=p_adjusted)


def holm(p_values: list[float | None]) -> list[float | None]:
    """Holm's step-down adjustment of one family (Holm 1979); None stays None and does not count."""
    # statsmodels' multipletests collects garbage at every call, which takes longer than all else in an analysis.
    known = np.array([p for p in p_values if p is not None], dtype=np.float64)
    order = np.argsort(known)
    stepped = np.maximum.accumulate(known[order] * np.arange(len(known), 0, -1)).clip(max=1.0)
    adjusted = iter(stepped[np.argsort(order)].tolist())
    return [None if p is None else next(adjusted) for p in p_values]


def all_correlations(
    prompts: pd.DataFrame,
    distinct: pd.DataFrame,
    decoded: pd.DataFrame,
    tested: Mapping[Condition, pd.DataFrame],
    suffixes: Mapping[Condition, str],
    settings: AnalysisSettings,
) -> dict[Pair, Correlation]:
    """Every correlation of the study, adjusted within its family: one level, subset and method. `distinct`: `prompts`
    without answers that repeat themselves."""
    found = dict(prompt_correlations(prompts, distinct, suffixes, settings))
    on_text: list[tuple[str, Key]] = [(x, "expected_accept") for x in ("draft_entropy_bits", "entropy_bits")]
    found |= token_correlations(decoded, on_text, settings)
    for condition, tokens in tested.items():
        accepted = At("accepted", condition, suffixes[condition])
        fates: list[tuple[str, Key]] = [(x, accepted) for x in ("draft_entropy_bits", "verifier_entropy_bits")]
        found |= token_correlations(tokens, fates, settings)
    families: dict[tuple[str, str, str], list[Pair]] = {}
    for pair in found:
        families.setdefault((pair.level, pair.subset, pair.method), []).append(pair)
    p_adjusted: dict[Pair, float | None] = {}
    for members in families.values():
        p_adjusted |= zip(members, holm([found[pair].p_value for pair in members]), strict=True)
    return {pair: _record(pair, estimate, p_adjusted[pair]) for pair, estimate in found.items()}
