"""How repeatable each measure is from one answer to the next, and so how strong a correlation could be at most.

Answers to one prompt are drawn independently. Their intraclass correlation, (MSB - MSW) / (MSB + (k - 1) MSW) from a
one-way analysis of variance (Shrout and Fleiss 1979, ICC(1, 1)), is the reliability of one answer; stepped up by
Spearman and Brown, k r / (1 + (k - 1) r), that of the mean over k answers. Noise in two measures of different texts
bounds their correlation by sqrt(r_x * r_y) (Spearman 1904). Two measures of one text share their noise: no such bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import (
    FEWEST_DRAWN,
    AnalysisSettings,
    Codes,
    Estimate,
    Floats,
    by_group,
    estimate,
    resampled_totals,
)
from specstudy.analysis.join import Tables, frame_of, group_codes, numbers, of_condition
from specstudy.analysis.means import estimate_frame
from specstudy.analysis.measures import (
    ACCEPTANCE_MEASURES,
    ANSWER_ACCEPTANCE_MEASURE,
    ANSWER_MEASURES,
    CONTEXT_MEASURES,
    PRIMARY_ACCEPTANCE_MEASURE,
    At,
    Key,
)
from specstudy.condition import Condition


def reliabilities(tables: Tables, suffixes: Mapping[Condition, str], settings: AnalysisSettings) -> pd.DataFrame:
    """Reliability of each measure that is sampled: measure, answers a prompt, that of a single answer, n prompts, that
    of the mean over the answers as value, low, high.

    Expected alpha of a study with one speculative answer a prompt is as reliable as the expected acceptance of one of
    the verifier's own answers, which is the same mean over another text of the same models.
    """

    def rows() -> Iterator[tuple[Mapping[str, Any], Estimate]]:
        runs = frame_of(tables, "decode_runs")
        single = {measure: _of_one_answer(tables, runs, measure, settings) for measure in ANSWER_MEASURES}
        for measure, found in single.items():
            yield _stepped_up(measure, found, _answers_a_prompt(runs))
        for condition, suffix in suffixes.items():
            spoken = of_condition(frame_of(tables, "spec_runs"), condition)
            answers = _answers_a_prompt(spoken)
            for measure in ACCEPTANCE_MEASURES:
                key = At(measure, condition, suffix)
                if answers > 1:
                    yield _stepped_up(key, _of_one_answer(tables, spoken, measure, settings), answers)
                elif measure == PRIMARY_ACCEPTANCE_MEASURE:
                    yield _stepped_up(key, single[ANSWER_ACCEPTANCE_MEASURE], answers)

    return estimate_frame(rows(), ("measure", "answers", "single"))


def _answers_a_prompt(runs: pd.DataFrame) -> float:
    return len(runs) / max(1, runs["prompt_id"].nunique())


def _of_one_answer(tables: Tables, runs: pd.DataFrame, measure: str, settings: AnalysisSettings) -> Estimate:
    values = numbers(runs[measure])
    known = np.isfinite(values)
    prompts = pd.Categorical(runs["prompt_id"][known])
    groups = group_codes(tables, prompts.categories)
    return intraclass_correlation(values[known], prompts.codes.astype(np.intp), settings, groups)


def _stepped_up(measure: Key, single: Estimate, answers: float) -> tuple[Mapping[str, Any], Estimate]:
    keys = {"measure": measure, "answers": answers, "single": np.nan if single.value is None else single.value}
    if single.value is None or single.low is None or single.high is None:
        return keys, single
    value, low, high = (spearman_brown(end, answers) for end in (single.value, single.low, single.high))
    return keys, Estimate(single.n, value, low, high)


def intraclass_correlation(
    values: Floats, prompts: Codes, settings: AnalysisSettings, groups: Codes | None = None
) -> Estimate:
    """Reliability of one answer: `values` (answers,) of the prompts numbered from 0; n is the number of prompts.

    `groups` int (prompts,): prompts of one group are drawn together.
    Null where no prompt has two answers, and where answers to one prompt are no more alike than those to others.
    """
    totals = np.column_stack([np.bincount(prompts, weights) for weights in (np.ones(len(values)), values, values**2)])
    n_prompts = len(totals)
    count, total, squares = totals.T
    sums = by_group(np.column_stack([np.ones(n_prompts), count, count**2, total, total**2 / count, squares]), groups)
    n_drawn = len(sums)
    if n_drawn < FEWEST_DRAWN or len(values) <= n_prompts:
        why = f"{len(values)} answers to {n_drawn} independent prompts; several a prompt and {FEWEST_DRAWN} are needed"
        return Estimate(n_prompts, null_reason=why)
    if np.ptp(values) <= 1e-9 * max(1.0, abs(values[0])):
        return Estimate(n_prompts, null_reason=f"is constant ({values[0]:.4g})")
    found = resampled_totals(sums, _from_sums, settings)
    if found is not None and found.value <= 0:
        why = f"answers to one prompt are no more alike than those to different prompts (r = {found.value:.2f})"
        return Estimate(n_prompts, null_reason=why)
    known = estimate(n_prompts, found, settings.confidence)
    return known if known.low is None else replace(known, low=max(known.low, 0.0))


def _from_sums(sums: Floats) -> Floats:
    """ICC(1, 1) by sample from sums over prompts (samples, 6): 1, answers, their square, total, its square over the
    answers, squares. Prompts with unequal numbers of answers count by their effective number (Donner 1986)."""
    n_prompts, n, n_squared, total, between, squares = sums.T
    between_mean = (between - total**2 / n) / (n_prompts - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        within_mean = (squares - between) / (n - n_prompts)
        answers = (n - n_squared / n) / (n_prompts - 1)
        found: Floats = (between_mean - within_mean) / (between_mean + (answers - 1) * within_mean)
    return found


def spearman_brown(single: float, answers: float) -> float:
    """Reliability of the mean over so many answers from that of one: k r / (1 + (k - 1) r)."""
    return answers * single / (1 + (answers - 1) * single)


def ceiling(reliability: pd.DataFrame, x: Key, y: Key) -> float | None:
    """The strongest correlation that the noise in x and y leaves room for; None if a reliability is not known, and for
    two measures of one text.

    Context measures are computed, not sampled: the same prompt gives the same value, so theirs is 1.
    """
    if x in ANSWER_MEASURES and y in ANSWER_MEASURES:
        return None
    known: dict[Key, float] = dict.fromkeys(CONTEXT_MEASURES, 1.0)
    known.update(zip(reliability["measure"], reliability["value"], strict=True))
    product = known.get(x, np.nan) * known.get(y, np.nan)
    return None if np.isnan(product) else float(np.sqrt(product))
