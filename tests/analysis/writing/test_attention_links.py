"""Links within answers: what was planted is found, what covariates or slow courses make is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.correlations import holm
from specstudy.analysis.join import Tables
from specstudy.analysis.writing import links
from specstudy.analysis.writing.links import attention_links
from specstudy.analysis.writing.tokens import COLUMNS, FATE, HELD, OUTCOMES
from specstudy.records import AttentionLink
from specstudy.tables.schema import to_table

SETTINGS = AnalysisSettings(bootstrap_samples=400)
Rng = np.random.Generator
N_STEPS = 96


@pytest.fixture
def sink_mass_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One measure takes less time than 32."""
    monkeypatch.setattr(links, "COLUMNS", {("sink_mass", "all"): "sink_mass"})


alone = pytest.mark.usefixtures("sink_mass_alone")


def frame(
    make: Callable[[Rng, np.ndarray], tuple[np.ndarray, np.ndarray]], n_prompts: int = 30, seed: int = 0
) -> pd.DataFrame:
    """Two answers a prompt; `make` draws sink mass and entropy of one from what is held (steps, covariates)."""
    rng = np.random.default_rng(seed)
    parts = []
    for answer in range(2 * n_prompts):
        kinds = np.eye(4)[rng.integers(4, size=N_STEPS), :3]
        held = np.column_stack([np.log(np.arange(N_STEPS) + 2), rng.gamma(1.0, 1.0, N_STEPS), kinds])
        sink, entropy = make(rng, held)
        columns = {name: rng.normal(size=N_STEPS) for name in (*COLUMNS.values(), *OUTCOMES)}
        keys = {"prompt_id": f"p{answer // 2:03d}", "repetition": answer % 2, "step": np.arange(1, N_STEPS + 1)}
        own = {"sink_mass": sink, "entropy_bits": entropy, **dict(zip(HELD, held.T, strict=True))}
        parts.append(pd.DataFrame({**keys, **columns, **own}))
    tokens = pd.concat(parts, ignore_index=True)
    return tokens.assign(group=tokens["prompt_id"])


def linked(tokens: pd.DataFrame, tables: Tables | None = None) -> AttentionLink:
    """Sink mass and entropy."""
    return attention_links(tokens, tokens[:0], tables or {}, SETTINGS).rows[0]


def slow(rng: Rng, n: int = N_STEPS, memory: float = 0.9) -> np.ndarray:
    """A first-order autoregressive course."""
    values = rng.normal(size=n)
    for t in range(1, n):
        values[t] = memory * values[t - 1] + np.sqrt(1 - memory**2) * values[t]
    return values


@alone
def test_a_planted_correlation_is_found_whatever_the_covariates_add() -> None:
    def make(rng: Rng, held: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x, own = rng.normal(size=N_STEPS), rng.normal(size=N_STEPS)
        y = -0.5 * x + np.sqrt(0.75) * own
        return x, y

    found = linked(frame(make))
    assert found.estimate == pytest.approx(6 / np.pi * np.arcsin(-0.25), abs=0.03)
    assert found.ci_low < found.estimate < found.ci_high < -0.4
    assert found.p_adjusted < 1e-6
    assert abs(found.shifted) < 0.02
    assert (found.n, found.n_answers) == (30, 60)


@alone
def test_what_step_kind_and_surprisal_make_of_both_is_taken_away() -> None:
    def make(rng: Rng, held: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shared = stats.rankdata(held[:, 0]) / 40 - stats.rankdata(held[:, 1]) / 40 + held[:, 2:] @ [1.0, -1.0, 0.5]
        return shared + rng.normal(size=N_STEPS), shared + rng.normal(size=N_STEPS)

    tokens = frame(make)
    raw = tokens.groupby(["prompt_id", "repetition"])[["sink_mass", "entropy_bits"]].corr("spearman").iloc[::2, 1]
    found = linked(tokens)
    assert raw.mean() > 0.4
    assert abs(found.estimate) < 0.05


@alone
def test_slow_courses_that_have_nothing_to_do_with_each_other_are_like_their_null() -> None:
    found = linked(frame(lambda rng, held: (slow(rng), slow(rng)), n_prompts=60))
    assert found.ci_low < 0 < found.ci_high
    assert abs(found.shifted) < 0.03
    assert found.ci_high - found.ci_low > 0.04  # wider than that of as many tokens without memory


@alone
def test_between_prompts_length_is_held() -> None:
    tokens = frame(lambda rng, held: (rng.normal(size=N_STEPS), rng.normal(size=N_STEPS)))
    ids = sorted(tokens["prompt_id"].unique())
    length = dict(zip(ids, np.geomspace(30, 400, len(ids)).astype(int), strict=True))
    by_length = np.log(tokens["prompt_id"].map(length).to_numpy(dtype=float))
    sink, entropy = tokens["sink_mass"] - 0.3 * by_length, tokens["entropy_bits"] + 0.3 * by_length
    tokens = tokens.assign(sink_mass=sink, entropy_bits=entropy)
    tables = {"prefill_prompts": pd.DataFrame({"prompt_id": ids, "n_tokens": [*length.values()]})}
    found = linked(tokens, tables)
    assert found.between_ci_low < 0 < found.between_ci_high
    assert found.n_between == 30


def test_between_prompts_an_answer_counts_as_much_as_a_longer_one() -> None:
    tokens = pd.DataFrame({"prompt_id": "p", "repetition": [0, 1, 1, 1], "sink_mass": [0.0, 1.0, 1.0, 1.0]})
    assert links._prompt_means(tokens, ["sink_mass"], ["p"])["sink_mass"].tolist() == [0.5]


@alone
def test_groups_are_drawn_whole() -> None:
    """Prompts in threes that agree in their link: fewer independent ones, a wider interval."""

    def make(rng: Rng, held: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=N_STEPS)
        return x, rng.normal(size=N_STEPS)

    tokens = frame(make, 36)
    number = tokens["prompt_id"].str[1:].astype(int)
    slope = np.random.default_rng(1).normal(size=12)[number // 3]
    tokens = tokens.assign(entropy_bits=tokens["entropy_bits"] + slope * tokens["sink_mass"])
    single, grouped = linked(tokens), linked(tokens.assign(group=(number // 3).map("g{}".format)))
    assert grouped.estimate == pytest.approx(single.estimate)
    assert grouped.ci_high - grouped.ci_low > 1.3 * (single.ci_high - single.ci_low)


def test_every_measure_has_a_row_and_holm_runs_within_an_outcome() -> None:
    tokens = frame(lambda rng, held: (rng.normal(size=N_STEPS), rng.normal(size=N_STEPS)), 5)
    tokens = tokens.assign(sink_mass_last_third=np.nan, draft_entropy_bits=0.0)
    found = attention_links(
        tokens, tokens.assign(**{FATE: tokens["entropy_bits"]}, draft_entropy_bits=1.0), {}, SETTINGS
    )
    assert len(found.rows) == len(found.estimates) == len(COLUMNS) * (len(OUTCOMES) + 1)
    assert to_table("attention_links", found.rows).num_rows == len(found.rows)
    for outcome in (*OUTCOMES, FATE):
        rows = [r for r in found.rows if r.outcome == outcome]
        assert [r.p_adjusted for r in rows] == holm([r.p_value for r in rows])
        assert all((r.estimate is None) == (r.null_reason is not None) for r in rows)
        gone = next(r for r in rows if (r.measure, r.layers) == ("sink_mass", "last_third"))
        assert (gone.estimate, gone.n, gone.n_answers) == (None, 0, 0)
    assert all(r.estimate is None for r in found.rows if r.outcome == "draft_entropy_bits")


@alone
def test_draft_entropy_is_held_where_the_fate_of_draft_tokens_is_asked() -> None:
    def make(rng: Rng, held: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        entropy = rng.normal(size=N_STEPS)
        return entropy + 0.5 * rng.normal(size=N_STEPS), entropy

    tokens = frame(make)
    rng = np.random.default_rng(3)
    fate = np.exp(-tokens["entropy_bits"]) * np.exp(0.3 * rng.normal(size=len(tokens)))
    tested = tokens.assign(draft_entropy_bits=tokens["entropy_bits"], **{FATE: fate})
    found = attention_links(tested[:0], tested, {}, SETTINGS).estimates["sink_mass", "all", FATE]
    assert np.corrcoef(stats.rankdata(tested["sink_mass"]), stats.rankdata(fate))[0, 1] < -0.6
    assert abs(found.value) < 0.05


@pytest.mark.long
@alone
def test_slow_courses_pass_for_a_link_as_rarely_as_stated() -> None:
    """95 % intervals of two independent slow courses hold zero in 95 % of studies, and null and estimate agree."""
    n_studies, missed, apart = 200, 0, []
    for seed in range(n_studies):
        found = linked(frame(lambda rng, held: (slow(rng), slow(rng)), n_prompts=20, seed=seed))
        missed += not found.ci_low <= 0 <= found.ci_high
        apart.append(found.estimate - found.shifted)
    least, most = stats.binom.ppf([0.0005, 0.9995], n_studies, 0.05)
    assert least <= missed <= most
    assert abs(np.mean(apart)) < 4 * np.std(apart) / np.sqrt(n_studies)
