"""The records of a speculative generation: counts, nulls, rates and costs agree with each other and with the text."""

import dataclasses
import math
from datetime import datetime

import numpy as np
import pytest
import tiny
import torch
from attention_models import eager_maps
from small_tokenizers import byte_level_tokenizer

from specstudy import formulas
from specstudy.measure import timing
from specstudy.measure.decode import GenerationSettings, measure_decode
from specstudy.measure.proposers import bound_stop, entropy_stop
from specstudy.measure.sampling import Warp
from specstudy.measure.speculation_records import SpeculationSettings, measure_speculation
from specstudy.models.load import Pair
from specstudy.prompts import Position, Prompt, RenderedPrompt

WARP = Warp(1.0, 0.9)
IDS = [3, 5, 7, 11, 2, 40, 9, 30, 31, 12, 13, 14]


@pytest.fixture(scope="module")
def pair():
    tokenizer = byte_level_tokenizer()
    models = [dataclasses.replace(tiny.llama(seed, vocab_size=256), vocabulary=256) for seed in (1, 2)]
    return Pair(models[0], models[1], tokenizer, (255,))


@pytest.fixture(scope="module")
def rendered():
    return RenderedPrompt(Prompt("p", "own", "text"), "text", tuple(Position(i, "user", None) for i in IDS))


def measured(pair, rendered, gamma=3, n=40, warp=WARP, **changes):
    settings = SpeculationSettings(
        generation=GenerationSettings(warp, n, pair.eos_ids, 3),
        gamma=gamma,
        **{"proposer": "model", "stop": "none", "stop_threshold": None, **changes},
    )
    generators = np.random.default_rng(1), np.random.default_rng(2)
    return measure_speculation(pair, rendered, settings, 0, *generators)


def test_rounds_and_tokens_add_up_to_the_run(pair, rendered):
    records = measured(pair, rendered)
    (run,) = records["spec_runs"]
    rounds, tokens = records["spec_rounds"], records["spec_tokens"]
    for name in ("n_proposed", "n_tested", "n_accepted"):
        assert getattr(run, name) == sum(getattr(r, name) for r in rounds)
    assert run.n_tokens == sum(r.n_emitted for r in rounds) == sum(t.emitted for t in tokens)
    assert run.n_rounds == len(rounds)
    drafted = [t for t in tokens if t.kind == "draft"]
    assert len(drafted) == run.n_proposed
    assert sum(t.outcome == "accepted" for t in drafted) == run.n_accepted
    assert sum(t.outcome != "untested" for t in drafted) == run.n_tested
    assert run.alpha == run.n_accepted / run.n_tested
    assert run.acceptance_rate == run.n_accepted / run.n_proposed
    tested = [t.expected_accept for t in drafted if t.outcome != "untested"]
    assert run.alpha_expected == pytest.approx(np.mean(tested))


@pytest.mark.parametrize("proposer", ["model", "prompt_lookup", "early_exit"])
def test_attention_has_a_row_for_every_token_of_the_answer_at_the_place_that_it_was_drafted_for(
    pair, rendered, proposer
):
    records = measured(pair, rendered, proposer=proposer)
    rows = [(row.round, row.index) for row in records["spec_attention_steps"]]
    assert rows == [(r.round, place) for r in records["spec_rounds"] for place in range(r.n_emitted)]
    tested = {(t.round, t.index) for t in records["spec_tokens"] if t.outcome in ("accepted", "rejected")}
    assert tested <= {*rows}
    by_hand = eager_maps(pair.verifier, [*IDS, *(t.token_id for t in records["spec_tokens"] if t.emitted)])
    paid = by_hand[:, :, len(IDS) - 1 : -1, 0].mean((0, 1))
    assert [row.sink_mass for row in records["spec_attention_steps"]] == pytest.approx(paid, abs=1e-5)


def test_untested_tokens_carry_nothing_of_the_verifier(pair, rendered):
    tokens = measured(pair, rendered)["spec_tokens"]
    untested = [t for t in tokens if t.outcome == "untested"]
    assert untested
    verifiers = ("p_verifier", "accept_prob", "expected_accept", "verifier_entropy_bits", "verifier_entropy_norm")
    assert all(getattr(t, name) is None for t in untested for name in verifiers)
    for t in tokens:
        if t.kind == "draft" and t.outcome != "untested":
            assert t.p_draft > 0
            assert t.accept_prob == pytest.approx(min(1.0, t.p_verifier / t.p_draft), rel=1e-5)
            assert t.verifier_entropy_norm == pytest.approx(t.verifier_entropy_bits / 8)
        if t.kind != "draft":
            assert t.p_draft is None
            assert t.outcome is None


def test_the_drafts_certainty_is_that_of_its_unwarped_softmax(pair, rendered):
    text = list(IDS)
    tokens = measured(pair, rendered, n=12)["spec_tokens"]
    for number in range(max(t.round for t in tokens) + 1):
        this_round = [t for t in tokens if t.round == number]
        seen = list(text)
        for t in (t for t in this_round if t.kind == "draft"):
            first, second = tiny.uncached_logits(pair.draft, seen)[-1].softmax(-1).topk(2).values.tolist()
            assert t.draft_top_prob == pytest.approx(first, abs=1e-5)
            assert t.draft_top_margin == pytest.approx(first - second, abs=1e-5)
            seen.append(t.token_id)
        assert this_round[-1].draft_top_prob is this_round[-1].draft_top_margin is None
        text += [t.token_id for t in this_round if t.emitted]


def test_a_rejection_is_followed_by_a_correction_and_full_acceptance_by_a_bonus(pair, rendered):
    records = measured(pair, rendered)
    for r in records["spec_rounds"]:
        last = [t for t in records["spec_tokens"] if t.round == r.round][-1]
        assert last.kind == ("bonus" if r.n_accepted == r.n_proposed else "correction")
        assert last.index == r.n_proposed


def test_rates_of_nothing_are_null(pair, rendered):
    (run,) = measured(pair, rendered, n=1)["spec_runs"]
    assert (run.n_tokens, run.n_proposed, run.n_rounds) == (1, 0, 1)
    assert (run.acceptance_rate, run.alpha, run.alpha_expected) == (None, None, None)
    assert run.theoretical_speedup_full is None


def test_time_shares_sum_to_one_and_theory_uses_alpha(pair, rendered):
    (run,) = measured(pair, rendered)["spec_runs"]
    assert run.draft_time_share + run.verify_time_share + run.overhead_time_share == pytest.approx(1.0)
    expected = formulas.expected_speedup(run.alpha, 3, run.cost_ratio_flops)
    assert run.theoretical_speedup_flops == pytest.approx(expected)
    assert run.cost_ratio_flops == 1.0
    assert run.speedup == pytest.approx(run.tokens_per_s / run.baseline_tokens_per_s)


def test_a_stop_rule_never_stops_before_the_first_token_and_emits_the_same_distribution(pair, rendered):
    always = measured(pair, rendered, stop="entropy", stop_threshold=0.0)
    assert {r.n_proposed for r in always["spec_rounds"][:-1]} == {1}
    assert all(r.stopped_early for r in always["spec_rounds"][:-1] if r.n_proposed)
    never = measured(pair, rendered, stop="entropy", stop_threshold=1.1)
    assert not any(r.stopped_early for r in never["spec_rounds"])
    assert [t.token_id for t in never["spec_tokens"]] == [t.token_id for t in measured(pair, rendered)["spec_tokens"]]


def test_stop_rules_by_hand():
    assert entropy_stop(0.5, 256)(4.0)
    assert not entropy_stop(0.5, 256)(3.9)
    # 1 - sqrt(0.2 * H) = 0.5 at H = 1.25 nats.
    bits = 1.25 / math.log(2)
    assert bound_stop(0.5)(bits + 0.01)
    assert not bound_stop(0.5)(bits - 0.01)


def test_costs_by_hand():
    costs = timing.measured_costs(
        verifier_step_s=[0.02, 0.02, 0.9],
        draft_s=[0.008, 0.008, 0.004],
        n_draft_passes=[4, 4, 2],
        n_proposed=[4, 4, 1],
        verify_s=[0.025, 0.025, 0.02],
        overhead_s=[0.001, 0.002, 0.003],
        gamma=4,
        cost_ratio_flops=0.1,
    )
    assert costs.cost_ratio_time == pytest.approx(0.1)
    assert costs.target_efficiency == pytest.approx(0.8)
    assert costs.overhead_steps == pytest.approx(0.1)
    theory = timing.theory(0.5, 2, costs)
    assert theory.time == pytest.approx(1.75 / 1.2)
    assert theory.full == pytest.approx(1.75 / (0.2 + 1.25 + 0.1))


def test_shorter_passes_do_not_stand_for_one_over_gamma_plus_one_tokens():
    costs = timing.measured_costs([0.02], [0.004, 0.002], [2, 1], [2, 1], [0.021, 0.02], [0.001, 0.001], 4, 0.1)
    assert costs.target_efficiency is None
    assert costs.cost_ratio_time == pytest.approx(0.1)
    theory = timing.theory(0.5, 4, costs)
    assert theory.full is None
    assert theory.time is not None


def test_speedup_from_steps_by_hand():
    # The middle of each part, whatever a burst did to one round: 20 ms for 10 tokens in 4 rounds of 30 ms.
    parts = [0.005, 0.004, 0.9, 0.004], [0.024, 0.025, 0.024, 0.9], [0.0015, 0.0015, 0.0015, 0.0015]
    assert timing.speedup_from_steps(0.02, 10, *parts) == pytest.approx(10 * 0.02 / (4 * 0.0305))
    times = timing.step_times([0.01 * i for i in range(1, 12)])
    assert (times.median_s, times.p10_s, times.p90_s) == pytest.approx((0.06, 0.02, 0.1))


def test_a_run_tells_its_steps_and_the_machine_that_they_were_timed_on(pair, rendered, monkeypatch):
    monkeypatch.setattr("specstudy.measure.speculation_records.load_average", lambda: 2.5)
    records = measured(pair, rendered)
    (run,) = records["spec_runs"]
    assert (run.load_average, run.threads) == (2.5, torch.get_num_threads())
    assert datetime.fromisoformat(run.measured_at).tzinfo is not None
    parts = ([getattr(r, f"{part}_s") for r in records["spec_rounds"]] for part in ("draft", "verify", "overhead"))
    round_s = sum(float(np.median(part)) for part in parts)
    assert run.speedup_steps == pytest.approx(run.n_tokens * run.verifier_step_s / (run.n_rounds * round_s))
    assert run.verifier_step_p10_s <= run.verifier_step_s <= run.verifier_step_p90_s
    (stopping,) = measured(pair, rendered, stop="entropy", stop_threshold=0.5)["spec_runs"]
    assert stopping.speedup_steps is None
    (alone,) = measured(pair, rendered, baseline=False)["spec_runs"]
    assert alone.speedup_steps is alone.verifier_step_s is None


def test_decode_records_describe_the_answer(pair, rendered):
    settings = GenerationSettings(Warp(0.7, 0.9), 20, pair.eos_ids, 3)
    records = measure_decode(pair, rendered, settings, [np.random.default_rng(0)])
    (run,) = records["decode_runs"]
    tokens = records["decode_tokens"]
    assert run.n_tokens == len(tokens)
    assert run.mean_entropy_bits == pytest.approx(np.mean([t.entropy_bits for t in tokens]))
    assert all(t.entropy_norm == pytest.approx(t.entropy_bits / 8) for t in tokens)
    assert all(0.0 <= t.expected_accept <= 1.0 for t in tokens)
    assert len(records["decode_attention"]) == len(IDS)
    assert sum(a.attention_from_generated for a in records["decode_attention"]) < 1.0
