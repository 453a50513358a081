"""Power by simulation: variances are those planted, verdicts keep their error rate, shared errors are seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from synthetic import Plan, make_tables

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.power import (
    LINK,
    LinkPlan,
    Measured,
    links_of,
    power,
    share_of_prompts,
    shared_deviation,
    verdicts,
)
from specstudy.errors import UserError

COARSE = AnalysisSettings(bootstrap_samples=200)
EXACT = Measured(1.0)
CONTEXT = LinkPlan("context", EXACT, Measured(0.5, 3))
ACROSS = LinkPlan("across texts", Measured(0.5, 3), Measured(0.6, 1))
SAME = LinkPlan("same text", Measured(0.5, 3), Measured(0.6, 3), 0.8)


def answers(values: list[list[float]]) -> pd.Series:
    """One measure of answers: a list a prompt."""
    keys = [(f"p{i:03d}", j) for i, row in enumerate(values) for j in range(len(row))]
    flat = [value for row in values for value in row]
    return pd.Series(flat, index=pd.MultiIndex.from_tuples(keys, names=["prompt_id", "repetition"]))


def constant(n: int) -> pd.DataFrame:
    return pd.DataFrame(np.ones((n, 1)), index=[f"p{i:03d}" for i in range(n)])


def test_the_share_of_prompts_is_that_of_analysis_of_variance():
    """Means 2, 4, 9: mean square 13. Within: 2, 2, 2 over 3 degrees of freedom, so 2; 13 - 2 / 2 of 13 - 1 + 2."""
    found = share_of_prompts(answers([[1, 3], [3, 5], [8, 10]]), constant(3))
    assert found == pytest.approx(12 / 14)


def test_answers_that_differ_more_than_prompts_leave_prompts_nothing():
    assert share_of_prompts(answers([[1, 9], [2, 8], [0, 10]]), constant(3)) == 0.0


def test_what_is_held_constant_is_no_part_of_the_share():
    rng = np.random.default_rng(0)
    covariate, own = rng.normal(size=(2, 2000))
    of_prompts = 3 * covariate + own
    values = of_prompts[:, None] + np.sqrt(0.5) * rng.normal(size=(2000, 3))
    design = constant(2000).set_axis([f"p{i:03d}" for i in range(2000)]).assign(covariate=covariate)
    assert share_of_prompts(answers(values.tolist()), design) == pytest.approx(1 / 1.5, abs=0.03)


def test_deviations_are_those_from_the_prompts_own_mean():
    """Opposite inside prompts, alike between them."""
    frame = pd.DataFrame({"x": answers([[1, 3], [11, 13]]), "y": answers([[3, 1], [13, 11]])})
    assert shared_deviation(frame, "x", "y") == pytest.approx(-1.0)


def test_the_correlation_of_means_is_attenuated_and_shared_errors_come_on_top():
    assert CONTEXT.y.reliability == pytest.approx(0.75)
    assert CONTEXT.observed(0.4) == pytest.approx(0.4 * np.sqrt(0.75))
    alike = LinkPlan("same text", Measured(0.5, 1), Measured(0.5, 1), 0.6)
    assert alike.observed(0.2) == pytest.approx(0.5 * 0.2 + 0.5 * 0.6)


def test_a_run_gives_its_links():
    tables = make_tables(Plan(repetitions=3, n_answer_tokens=12))
    links = {link.name: link for link in links_of(tables)}
    assert len(links) == 5
    assert links["context_to_entropy"].x == EXACT
    assert links["context_to_entropy"].y.n_answers == 3
    assert 0.5 < links["context_to_entropy"].y.share < 1
    # Planted: acceptance falls with the draft's entropy, token by token.
    assert links["draft_entropy_to_acceptance_same_text"].shared > 0.2
    assert links["entropy_to_acceptance_across_texts"].shared == 0
    without = {name: frame for name, frame in tables.items() if not name.startswith("spec")}
    assert [link.name for link in links_of(without)] == [*links][:4]


@pytest.mark.parametrize(
    ("plan", "told"), [(Plan(n_answer_tokens=8), "two answers"), (Plan(n_per_category=1, repetitions=2), "too few")]
)
def test_a_run_without_its_variances_is_refused(plan, told):
    with pytest.raises(UserError, match=told):
        links_of(make_tables(replace(plan, n_answer_tokens=8)))


def test_power_grows_with_the_effect_and_with_the_prompts():
    rows = [*power([CONTEXT], (0.2, 0.6), (50, 150), 60, COARSE)]
    shares = {(row.rho, row.n_prompts): row for row in rows}
    assert shares[0.2, 150].most < shares[0.6, 150].least
    assert shares[0.6, 50].least < shares[0.6, 150].least
    assert all(row.least <= row.most for row in rows)


def test_shared_errors_support_a_link_of_texts_that_prompts_do_not_have():
    """On one text the verdict is about texts: the prompts' true values have nothing in common here."""
    alike = LinkPlan("same text", Measured(0.5), Measured(0.5), 0.8)
    same, across = (
        sum(verdicts(link, 0.0, 50, seed, COARSE)[1] == "supported" for seed in range(40)) for link in (alike, ACROSS)
    )
    assert same > 15
    assert across < 5


@pytest.mark.long
@pytest.mark.parametrize("n_prompts", [50, 150])
@pytest.mark.parametrize("link", [LinkPlan("exact", EXACT, EXACT), CONTEXT, ACROSS, SAME], ids=lambda link: link.name)
def test_a_link_at_the_margin_is_supported_in_at_most_one_of_forty(link, n_prompts):
    """At the margin in what is observed: on one text that is what the verdict is about, elsewhere it is the worst case.

    By the interval alone, as where all links of the family are decided.
    """
    n_studies = 2000
    rho = (LINK.margin - link.observed(0.0)) / (link.observed(1.0) - link.observed(0.0))
    found = [verdicts(link, rho, n_prompts, seed, COARSE)[1] for seed in range(n_studies)]
    assert found.count("supported") <= stats.binom.ppf(0.999, n_studies, 0.025)


@pytest.mark.long
@pytest.mark.parametrize("link", [CONTEXT, ACROSS], ids=lambda link: link.name)
def test_noise_of_answers_makes_no_link_of_true_values_at_the_margin(link):
    found = [verdicts(link, LINK.margin, 200, seed, COARSE)[1] for seed in range(1000)]
    assert found.count("supported") <= stats.binom.ppf(0.999, 1000, 0.025)
