"""How often a link of the chain would be supported: studies simulated from the variances of one that was run.

What a link takes for a prompt's value is a mean over a few sampled answers: the prompt's true value and the answers'
deviations from it. How much is which is estimated from the run; how strongly the true values go together is assumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specstudy.analysis.between_within import DRAFT, OUTCOME, VERIFIER
from specstudy.analysis.bootstrap import AnalysisSettings, Estimate, Floats
from specstudy.analysis.correlation import correlate, design_of
from specstudy.analysis.correlations import holm, prompt_subsets
from specstudy.analysis.declarations import declarations
from specstudy.analysis.join import Tables, conditions_measured, decoded_tokens, frame_of, prompt_frame
from specstudy.analysis.verdicts import decide, p_at_margin
from specstudy.analysis.version_effects import unaltered_only
from specstudy.errors import UserError

N_CATEGORIES = 5
LINKS = [claim for claim in declarations() if claim.link]
LINK = next(claim for claim in LINKS if claim.direction == "greater")
"""Any link: the margin and the test of all of them; its sign makes no difference."""


@dataclass(frozen=True)
class Measured:
    """An end of a link. `share` of the variance of one answer's value is the prompt's (the confounders held constant,
    in ranks), the rest the answer's own; means are over `n_answers`."""

    share: float
    n_answers: int = 1

    @property
    def reliability(self) -> float:
        """The share of the mean's variance that is the prompt's (Spearman and Brown)."""
        return self.share / (self.share + (1 - self.share) / self.n_answers)


@dataclass(frozen=True)
class LinkPlan:
    """A link to be simulated, named so that it is claimed to be positive.

    `shared`: the correlation of the two measures' deviations from the prompts' values, from answer to answer; 0 where
    the two ends are measured on different texts, or one of them on the prompt alone.
    """

    name: str
    x: Measured
    y: Measured
    shared: float = 0.0

    def observed(self, rho: float) -> float:
        """About what the correlation of the means comes to where that of the prompts' true values is `rho`."""
        a, b = self.x.reliability, self.y.reliability
        return float(rho * np.sqrt(a * b) + self.shared * np.sqrt((1 - a) * (1 - b)))


@dataclass(frozen=True)
class Power:
    """Of studies of a link with a true `rho`, how many support it: `least`, if no other link of the family is decided,
    `most`, if all are. `observed`: what their estimates aim at."""

    link: str
    rho: float
    n_prompts: int
    observed: float
    least: float
    most: float


def links_of(tables: Tables) -> list[LinkPlan]:
    """The links of the chain with the variances of a run: its decode answers, and its speculative ones across texts.

    Raises UserError where answers or prompts are too few to tell the variances apart.
    """
    tables = unaltered_only(tables)
    answers = _answers(tables)
    design = _confounders(tables, answers)
    n_answers = round(len(answers) / len(design))
    entropy, draft, accept = (Measured(share_of_prompts(answers[name], design), n_answers) for name in _MEASURES)
    context = Measured(1.0)
    repetitions = frame_of(tables, "spec_runs")["repetition"].nunique()
    links = [
        LinkPlan("context_to_entropy", context, entropy),
        LinkPlan("context_to_acceptance", context, accept),
        LinkPlan("entropy_to_acceptance_same_text", entropy, accept, -shared_deviation(answers, VERIFIER, OUTCOME)),
        LinkPlan("draft_entropy_to_acceptance_same_text", draft, accept, -shared_deviation(answers, DRAFT, OUTCOME)),
    ]
    if conditions_measured(tables):
        links.append(LinkPlan("entropy_to_acceptance_across_texts", entropy, Measured(accept.share, int(repetitions))))
    return links


_MEASURES = (VERIFIER, DRAFT, OUTCOME)


def _answers(tables: Tables) -> pd.DataFrame:
    """Mean of each measure over an answer, as ranks among all answers: by prompt_id and repetition."""
    tokens = decoded_tokens(tables).dropna(subset=[*_MEASURES])
    answers = tokens.groupby(["prompt_id", "repetition"], observed=True)[[*_MEASURES]].mean().rank()
    if answers.empty or answers.groupby(level="prompt_id", observed=True).size().min() < 2:
        raise UserError("a prompt has less than two answers with both entropies; run a study with decode.repetitions=3")
    return answers


def _confounders(tables: Tables, answers: pd.DataFrame) -> pd.DataFrame:
    """What is held constant of each prompt with answers: a constant, categories, ranks of ln length and surprisal."""
    prompts = prompt_frame(tables)
    prompts = prompts.loc[prompts.index.isin(answers.index.unique("prompt_id"))]
    prompts = prompts.dropna(subset=["n_tokens", "prompt_nll_bits"])
    covariates = prompt_subsets(prompts)["given_confounders"][1]
    assert covariates is not None
    design = design_of(covariates, "spearman")
    if len(prompts) - np.linalg.matrix_rank(design) < 2:
        raise UserError(f"{len(prompts)} prompts are too few to hold the confounders constant")
    return pd.DataFrame(design, index=prompts.index)


def share_of_prompts(answers: pd.Series, design: pd.DataFrame) -> float:
    """The share of the variance of one answer that is its prompt's, given the design of prompts (constant included).

    One-way analysis of variance: between prompts the mean square of the residuals of prompts' means, less what the
    answers' own variance puts there. 0 where that is negative.
    """
    of_prompt = answers.groupby(level="prompt_id", observed=True)
    own = answers - of_prompt.transform("mean")
    sizes, means = of_prompt.size().loc[design.index], of_prompt.mean().loc[design.index]
    of_answers = float((own**2).sum() / (len(answers) - answers.index.get_level_values("prompt_id").nunique()))
    residuals = means - design @ np.linalg.lstsq(design, means, rcond=None)[0]
    square = float((residuals**2).sum() / (len(means) - np.linalg.matrix_rank(design)))
    of_prompts = max(0.0, square - of_answers * float((1 / sizes).mean()))
    return of_prompts / (of_prompts + of_answers) if of_prompts else 0.0


def shared_deviation(answers: pd.DataFrame, x: str, y: str) -> float:
    """The correlation of two measures' deviations from the means of their prompts."""
    deviations = answers[[x, y]] - answers[[x, y]].groupby(level="prompt_id", observed=True).transform("mean")
    a, b = (deviations[name].to_numpy() for name in (x, y))
    spread = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / spread) if spread > 0 else 0.0


def power(
    links: Sequence[LinkPlan],
    rhos: Sequence[float],
    sizes: Sequence[int],
    n_studies: int,
    settings: AnalysisSettings,
) -> Iterator[Power]:
    """A row a link, true correlation and number of prompts, each from `n_studies` simulated studies."""
    for link in links:
        for rho in rhos:
            for n_prompts in sizes:
                found = [verdicts(link, rho, n_prompts, seed, settings) for seed in range(n_studies)]
                least, most = (float(np.mean([v[i] == "supported" for v in found])) for i in (0, 1))
                yield Power(link.name, rho, n_prompts, link.observed(rho), least, most)


def verdicts(link: LinkPlan, rho: float, n_prompts: int, seed: int, settings: AnalysisSettings) -> tuple[str, str]:
    """The verdicts of one simulated study: with no other link of the family decided, and with all of them."""
    estimate = study(link, rho, n_prompts, np.random.default_rng([seed, n_prompts]), settings)
    p = p_at_margin(LINK, estimate)
    adjusted = holm([p, *[1.0] * (len(LINKS) - 1)])[0]
    return decide(LINK, estimate, adjusted, settings.confidence), decide(LINK, estimate, p, settings.confidence)


def study(link: LinkPlan, rho: float, n_prompts: int, rng: np.random.Generator, settings: AnalysisSettings) -> Estimate:
    """The link's estimate in a simulated study whose prompts' true values have Spearman's coefficient `rho`.

    True values and deviations are normal and independent of what is held constant, as the shares are those that are
    left when it is.
    """
    true = _pair(2 * np.sin(np.pi * rho / 6), n_prompts, rng)
    deviations = _pair(link.shared, n_prompts, rng)
    parts = ((link.x.reliability, link.y.reliability), true, deviations)
    x, y = (np.sqrt(r) * value + np.sqrt(1 - r) * own for r, value, own in zip(*parts, strict=True))
    categories = np.eye(N_CATEGORIES)[np.arange(n_prompts) % N_CATEGORIES][:, 1:]
    covariates = np.column_stack([categories, rng.normal(size=(n_prompts, 2))])
    return correlate(x, y, np.arange(n_prompts, dtype=np.intp), "spearman", settings, covariates)


def _pair(r: float, n: int, rng: np.random.Generator) -> Floats:
    """Two normal variables with this correlation: (2, n)."""
    x, y = rng.normal(size=(2, n))
    return np.stack([x, r * x + np.sqrt(1 - r**2) * y])
