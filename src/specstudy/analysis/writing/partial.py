"""Partial rank correlations inside answers, and what remains of them where one side is turned against the other.

Ranks all the way: x, y and the continuous covariates are ranked within the answer; dummies stay as they are, to which
ranking does nothing. What the covariates explain is removed from both by least squares, and the rest is correlated.

A series that goes slowly up and down seems to follow any other such series of its length. So the null turns x within
the answer, as on a ring, by amounts that are drawn: x keeps all of its own course and loses only its place beside y.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from specstudy.analysis.bootstrap import Codes, Floats
from specstudy.analysis.correlation import design_of
from specstudy.analysis.writing.tokens import ANSWER
from specstudy.seeds import uniforms

Mask = NDArray[np.bool_]
FEWEST_STEPS = 16
"""A coefficient rests on at least so many tokens of an answer; the covariates take up to seven degrees of freedom."""
N_SHIFTS = 20
NEAREST = 0.125
"""A shift moves x at least by this share of the answer, either way, so that what is next to a token is far from it."""


@dataclass(frozen=True)
class Answer:
    """What is measured of T tokens of one answer: x (T, m), y (T, k), NaN where there is none, and what is held (T, c),
    all of it known."""

    prompt_id: str
    repetition: int
    x: Floats
    y: Floats
    held: Floats


@dataclass(frozen=True)
class Coefficients:
    """Means over a prompt's answers, prompts in order of their ids: `found` and `shifted` float64 (prompts, m, k), NaN
    where no answer has a coefficient. `n_answers` (m, k): answers that have one."""

    prompt_ids: list[str]
    found: Floats
    shifted: Floats
    n_answers: Codes


def answers_of(tokens: pd.DataFrame, x: Sequence[str], y: Sequence[str], held: Sequence[str]) -> Iterator[Answer]:
    """Tokens in order, numbered from 0, as `writing.tokens` gives them, taken apart into answers."""
    first = tokens[~tokens.duplicated(ANSWER).to_numpy()]
    cuts = first.index.to_numpy()[1:]
    parts = (np.split(tokens[[*columns]].to_numpy(dtype=np.float64), cuts) for columns in (x, y, held))
    for prompt_id, repetition, *measured in zip(first["prompt_id"], first["repetition"], *parts, strict=True):
        yield Answer(str(prompt_id), int(repetition), *measured)


def coefficients(answers: Iterable[Answer], shape: tuple[int, int], seed: int, n_shifts: int = 0) -> Coefficients:
    """Each pair's coefficient by prompt, and the mean of those under `n_shifts` shifts. `shape`: (m, k)."""
    prompts: list[str] = []
    values = [np.zeros((0, 2, *shape))]
    for answer in answers:
        prompts.append(answer.prompt_id)
        drawn = uniforms(seed, "shifts", answer.prompt_id, answer.repetition).random(n_shifts)
        values.append(_of_answer(answer, NEAREST + (1 - 2 * NEAREST) * drawn)[None])
    found = np.concatenate(values)
    means = pd.DataFrame(found.reshape(len(found), -1)).groupby(np.array(prompts, dtype=object)).mean()
    by_prompt = means.to_numpy(dtype=np.float64).reshape(-1, 2, *shape)
    n_answers = np.isfinite(found[:, 0]).sum(axis=0)
    return Coefficients([*map(str, means.index)], by_prompt[:, 0], by_prompt[:, 1], n_answers)


def _of_answer(answer: Answer, shares: Floats) -> Floats:
    """The coefficients, then their means under shifts by these shares of the answer: (2, m, k), NaN where undefined.

    Columns that are known on the same tokens are taken together.
    """
    found = np.full((2, answer.x.shape[1], answer.y.shape[1]), np.nan)
    for in_x, known_x in _alike(answer.x):
        for in_y, known_y in _alike(answer.y):
            kept = known_x & known_y
            if kept.sum() >= FEWEST_STEPS:
                shifts = np.round(shares * kept.sum()).astype(np.intp)
                turned = partial_spearman(answer.x[kept][:, in_x], answer.y[kept][:, in_y], answer.held[kept], shifts)
                means = turned[1:].mean(axis=0) if len(shifts) else np.full(turned.shape[1:], np.nan)
                found[np.ix_((0, 1), in_x, in_y)] = turned[0], means
    return found


def _alike(columns: Floats) -> Iterable[tuple[list[int], Mask]]:
    """The columns that are known on the same tokens, and which these are (bool)."""
    found: dict[bytes, tuple[list[int], Mask]] = {}
    for place, known in enumerate(np.isfinite(columns).T):
        found.setdefault(known.tobytes(), ([], known))[0].append(place)
    return found.values()


def partial_spearman(x: Floats, y: Floats, held: Floats, shifts: Codes) -> Floats:
    """Partial rank correlations of columns of x (T, m) and y (T, k) given `held` (T, c): (1 + shifts, m, k).

    First as they are, then with x moved on by each of `shifts` places, what leaves at the end coming in at the start.
    NaN where a measure does not vary, or not beyond what is held.
    """
    n = len(x)
    basis = _basis(design_of(held, "spearman"))
    ranked_x, ranked_y = (stats.rankdata(values, axis=0) - (n + 1) / 2 for values in (x, y))
    rest_y = ranked_y - basis @ (basis.T @ ranked_y)
    turned = ranked_x[(np.arange(n) - np.append(0, shifts)[:, None]) % n]
    # What is left of y has nothing of the covariates, so x need not be freed from them to be multiplied with it.
    products = np.swapaxes(rest_y.T @ turned, 1, 2)
    whole_x, whole_y = (ranked_x**2).sum(axis=0), (ranked_y**2).sum(axis=0)
    left_x = whole_x - ((basis.T @ turned) ** 2).sum(axis=1)
    left_y = (rest_y**2).sum(axis=0)
    varies = (left_x > 1e-9 * whole_x)[:, :, None] & (left_y > 1e-9 * whole_y)
    scale = np.sqrt(np.maximum(left_x, 0.0)[:, :, None] * left_y)
    return np.where(varies, products, np.nan) / np.where(varies, scale, 1.0)


def _basis(design: Floats) -> Floats:
    """Orthonormal columns (T, rank) that span those of a design."""
    u, values, _ = np.linalg.svd(design / np.maximum(np.abs(design).max(axis=0), 1e-12), full_matrices=False)
    basis: Floats = u[:, values > 1e-9 * values[0]]
    return basis
