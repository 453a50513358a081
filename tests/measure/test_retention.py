"""Keys dropped from a cache: which ones, and what that costs, against plain passes with an explicit mask."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attention_models
import numpy as np
import pytest
import tiny
import torch
from scipy import stats
from tiny_study import tiny_pair
from torch import Tensor
from transformers import PreTrainedConfig

from specstudy.measure.decode import GenerationSettings, measure_decode
from specstudy.measure.retention import MEASURES, Forced, divergence_bits, measure_retention, retentions
from specstudy.measure.sampling import Warp
from specstudy.models.load import Pair
from specstudy.prompts import Prompt, RenderedPrompt, render
from specstudy.records import RetentionRun

SETTINGS = GenerationSettings(Warp(0.7, 0.9), 10, (), 3)
PLAIN = GenerationSettings(Warp(1.0, 1.0), 10, (), 3)
BUDGETS = (0.25, 0.5, 0.75)
PROMPT_IDS, ANSWER_IDS = [3, 17, 5, 41, 8, 29, 11, 2, 50, 7, 33, 21], [4, 9, 44, 13, 27, 1]


def of_budget(n_prompt: int, budget: float, seed: int = 0) -> dict[str, set[int]]:
    """The kept positions by policy."""
    found = retentions(n_prompt, [budget], np.random.default_rng(seed))
    return {r.policy: set(range(n_prompt)) - set(r.dropped) for r in found if r.dropped is not None}


def test_what_is_kept_of_twenty_tokens_at_half() -> None:
    kept = of_budget(20, 0.5)
    assert kept["all"] == set(range(20))
    assert kept["first_and_last"] == {0, 1, 2, 3, 14, 15, 16, 17, 18, 19}
    assert kept["last"] == set(range(10, 20))
    assert kept["random_and_last"] >= set(range(14, 20))
    drawn = kept["random_and_last"] - set(range(14, 20))
    assert len(drawn) == 4
    assert drawn <= set(range(4, 14)), "of what the first and the last leave"


@pytest.mark.parametrize("n_prompt", [16, 17, 33, 200])
@pytest.mark.parametrize("budget", [0.3, 0.5, 0.75])
def test_every_policy_keeps_equally_many_and_the_last_token(n_prompt: int, budget: float) -> None:
    for kept in [kept for policy, kept in of_budget(n_prompt, budget).items() if policy != "all"]:
        assert len(kept) == round(budget * n_prompt)
        assert n_prompt - 1 in kept


def test_what_is_drawn_differs_by_seed_alone() -> None:
    assert of_budget(40, 0.5, 1) == of_budget(40, 0.5, 1)
    assert len({frozenset(of_budget(40, 0.5, seed)["random_and_last"]) for seed in range(8)}) > 4
    both = retentions(40, [0.25, 0.5], np.random.default_rng(1))
    assert set(range(40)) - set(both[-1].dropped or ()) == of_budget(40, 0.5, 1)["random_and_last"]


@pytest.mark.parametrize(
    ("n_prompt", "budget", "word"), [(16, 0.25, "none beside"), (12, 0.75, "too few"), (1, 0.5, "none")]
)
def test_a_prompt_too_short_for_a_budget_says_so(n_prompt: int, budget: float, word: str) -> None:
    found = retentions(n_prompt, [budget], np.random.default_rng(0))
    assert [r.dropped for r in found] == [(), None, None, None]
    assert all(word in str(r.null_reason) for r in found[1:])


def test_divergence_of_two_coins() -> None:
    p, q = (
        torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0]]).log(),
        torch.tensor([[0.25, 0.25, 0.5], [0.25, 0.75, 0.0]]),
    )
    found = divergence_bits(p + 3.0, q.log())
    assert found.tolist() == pytest.approx([1.0, 0.0], abs=1e-6)


def pair_of(config: PreTrainedConfig) -> Pair:
    verifier, draft = (attention_models.language_model(config, seed) for seed in (0, 1))
    return Pair(verifier, draft, None, ())


def log_probabilities(logits: Tensor) -> np.ndarray:
    return logits.double().log_softmax(-1).numpy()


def expected(pair: Pair, role: str, dropped: Sequence[int]) -> dict[str, float]:
    """By plain passes over the whole text, the masked one with an explicit mask; everything else in NumPy."""
    ids, first = [*PROMPT_IDS, *ANSWER_IDS[:-1]], len(PROMPT_IDS) - 1
    whole = {
        name: log_probabilities(tiny.uncached_logits(getattr(pair, name), ids)[first:])
        for name in ("verifier", "draft")
    }
    model = getattr(pair, role)
    own = log_probabilities(tiny.logits_without_positions(model, ids, [*dropped], first)[first:])
    p, q = (own if role == name else whole[name] for name in ("verifier", "draft"))
    maps = attention_models.eager_maps(model, ids)[:, :, first:]
    return {
        "mean_expected_accept": float(np.minimum(np.exp(p), np.exp(q)).sum(-1).mean()),
        "mean_nll_bits": float(-own[np.arange(len(ANSWER_IDS)), ANSWER_IDS].mean() / math.log(2)),
        "mean_entropy_bits": float(np.mean([stats.entropy(row, base=2) for row in np.exp(own)])),
        "mean_kl_bits": float(
            np.mean([stats.entropy(*rows, base=2) for rows in zip(np.exp(whole[role]), np.exp(own), strict=True)])
        ),
        "attention_lost": float(maps[..., [*dropped]].sum(-1).mean()),
    }


# One mask is that of every layer: windows are tested where positions are hidden.
KINDS = ("llama", "one key head", "learned positions", "experts", "own head size")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("role", ["draft", "verifier"])
def test_costs_are_those_of_plain_passes(kind: str, role: str) -> None:
    pair = pair_of(tiny.configurations()[kind])
    forced = Forced(pair, PROMPT_IDS, ANSWER_IDS, PLAIN)
    for dropped in ([0, 1, 2, 3, 4], [4, 5, 6, 9], [0]):
        found = forced.costs(role, dropped)
        assert found == pytest.approx(expected(pair, role, dropped), abs=1e-5)
        assert found["mean_kl_bits"] > 1e-3
    whole = forced.costs(role, [])
    assert (whole["mean_kl_bits"], whole["attention_lost"]) == (0.0, 0.0)
    assert whole == pytest.approx(expected(pair, role, []), abs=1e-5)


@pytest.mark.parametrize("kind", ["sliding window", "alternating", "soft-capped", "sink parameter", "chunked"])
def test_dropped_keys_cost_alike_with_a_fresh_cache_in_every_kind_of_attention(kind: str) -> None:
    """Caches that let go of what leaves a window are rolled back and read again for each way to drop."""
    pair = pair_of(attention_models.by_function()[kind])
    several = Forced(pair, PROMPT_IDS, ANSWER_IDS, SETTINGS)
    ways = ([6, 7, 9], [0, 1, 2, 3], [5, 8])
    found = [several.costs("verifier", dropped) for dropped in ways]
    assert found == [Forced(pair, PROMPT_IDS, ANSWER_IDS, SETTINGS).costs("verifier", dropped) for dropped in ways]
    assert several.costs("verifier", []) == Forced(pair, PROMPT_IDS, ANSWER_IDS, SETTINGS).costs("verifier", [])
    assert found[0]["mean_kl_bits"] > 1e-4


def test_long_answers_are_measured_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = pair_of(tiny.configurations()["llama"])
    whole = Forced(pair, PROMPT_IDS, ANSWER_IDS, SETTINGS).costs("draft", [0, 5])
    monkeypatch.setattr("specstudy.measure.retention.BLOCK_TOKENS", 4)
    assert Forced(pair, PROMPT_IDS, ANSWER_IDS, SETTINGS).costs("draft", [0, 5]) == pytest.approx(whole, abs=1e-6)


def test_a_prompt_of_one_token_is_measured_whole() -> None:
    whole = Forced(pair_of(tiny.configurations()["llama"]), [3], ANSWER_IDS, SETTINGS).costs("verifier", [])
    assert (whole["mean_kl_bits"], whole["attention_lost"]) == (0.0, 0.0)
    assert whole["mean_entropy_bits"] > 0


@pytest.fixture(scope="module")
def measured() -> tuple[list[RetentionRun], dict[str, list[object]]]:
    """Two answers to a prompt, as this measurement and as the decode stage know them."""
    pair = tiny_pair()
    rendered: RenderedPrompt = render(Prompt("p", "own", "Say one in a few words."), pair.tokenizer)

    def rngs() -> list[np.random.Generator]:
        return [np.random.default_rng(seed) for seed in (5, 6)]

    rows = measure_retention(pair, rendered, SETTINGS, BUDGETS, rngs(), np.random.default_rng(0))["retention_runs"]
    return rows, measure_decode(pair, rendered, SETTINGS, rngs())


def test_with_all_keys_the_answers_are_those_of_the_decode_stage(
    measured: tuple[list[RetentionRun], dict[str, list[object]]],
) -> None:
    rows, decoded = measured
    for run in decoded["decode_runs"]:
        draft, verifier = (
            next(r for r in rows if (r.repetition, r.model, r.policy) == (run.repetition, model, "all"))
            for model in ("draft", "verifier")
        )
        assert draft.mean_expected_accept == pytest.approx(run.mean_expected_accept, abs=1e-6)
        assert verifier.mean_expected_accept == pytest.approx(run.mean_expected_accept, abs=1e-6)
        assert verifier.mean_entropy_bits == pytest.approx(run.mean_entropy_bits, abs=1e-5)
        assert draft.mean_entropy_bits == pytest.approx(run.mean_draft_entropy_bits, abs=1e-5)
        logs = [t.logprob for t in decoded["decode_tokens"] if t.repetition == run.repetition]
        assert verifier.mean_nll_bits == pytest.approx(-np.mean(logs) / math.log(2), abs=1e-5)
        assert (verifier.n_tokens, verifier.n_kept, verifier.n_dropped) == (run.n_tokens, run.n_prompt_tokens, 0)


def test_a_row_for_every_answer_model_policy_and_budget(
    measured: tuple[list[RetentionRun], dict[str, list[object]]],
) -> None:
    rows = measured[0]
    assert len({(r.repetition, r.model, r.policy, r.budget) for r in rows}) == len(rows) == 2 * 2 * (1 + 3 * 3)
    dropped = [r for r in rows if r.policy != "all"]
    assert all(
        r.n_kept + r.n_dropped == rows[0].n_kept and r.n_kept == round(r.budget * rows[0].n_kept) for r in dropped
    )
    assert all(0 < r.attention_lost < 1 and r.mean_kl_bits > 0 and r.null_reason is None for r in dropped)
    first, random = (
        next(r for r in rows if (r.model, r.policy, r.budget) == ("verifier", policy, 0.5))
        for policy in ("first_and_last", "random_and_last")
    )
    assert first.mean_kl_bits != random.mean_kl_bits


def test_measures_are_null_where_the_prompt_is_too_short() -> None:
    pair = tiny_pair()
    rendered = render(Prompt("p", "own", "Say one."), pair.tokenizer)
    budget = 4 / len(rendered.positions)
    rows = measure_retention(pair, rendered, SETTINGS, [budget], [np.random.default_rng(0)], np.random.default_rng(0))
    null = [row for row in rows["retention_runs"] if row.policy != "all"]
    assert len(null) == 6
    assert all(getattr(row, name) is None for row in null for name in MEASURES)
    assert all(row.null_reason for row in null)
