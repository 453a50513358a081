"""The self-check passes on an honest engine and fails on planted faults; its parts by hand."""

import dataclasses

import numpy as np
import pytest
import tiny
import torch
from scipy import stats

from specstudy.measure import self_check
from specstudy.measure.decode import GenerationSettings
from specstudy.measure.proposers import ModelProposer
from specstudy.measure.sampling import Warp
from specstudy.measure.self_check import run_self_check
from specstudy.measure.speculation_records import SpeculationSettings
from specstudy.measure.speculative import SpeculativeLoop
from specstudy.models.load import Pair
from specstudy.models.shallow import FrequentIdsHead
from specstudy.tables.store import canonical_json

PROMPTS = [[3, 5, 7, 11, 2, 40], [9, 8, 1, 1, 30]]
WARP = Warp(1.0, 0.9)


def settings_for(gamma=3, warp=WARP, proposer="model", stop="none", n=32, exit_layers=2):
    return SpeculationSettings(GenerationSettings(warp, n, ()), gamma, proposer, stop, 0.5, exit_layers)


@pytest.fixture(params=["float32", "bfloat16"])
def pair(request):
    verifier, draft = tiny.llama(1), tiny.llama(1)
    noise = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in draft.module.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=noise))
    for model in (verifier, draft):
        model.module.to(getattr(torch, request.param))
    return Pair(verifier, draft, None, ())


def checked(pair, seed, *settings):
    return run_self_check(
        pair, PROMPTS, settings or [settings_for()], lambda index: np.random.default_rng([seed, index])
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_honest_engine_passes(pair, seed):
    assert checked(pair, seed).passed


def test_a_head_over_few_ids_is_compared_on_its_own_ids(pair, monkeypatch):
    head = FrequentIdsHead(pair.draft.module.lm_head.weight, torch.arange(2, tiny.VOCABULARY, 3))
    pair.draft.module.lm_head = head
    assert checked(pair, 0).passed
    real, weight = ModelProposer.propose, head.weight.clone()
    other_rows = weight.roll(1, 0)

    def by_other_rows(self, *arguments):
        head.weight.copy_(other_rows)
        proposal = real(self, *arguments)
        head.weight.copy_(weight)
        return proposal

    with monkeypatch.context() as planted:
        planted.setattr(ModelProposer, "propose", by_other_rows)
        outcome = checked(pair, 0)
        assert not outcome.draft_logits.passed
        assert outcome.verifier_logits.passed
    # The engine drafts among fewer ids than the head has.
    some_ids = pair.draft.head_ids()[:-1]
    proposer = ModelProposer.__init__

    def among_some(self, *arguments):
        proposer(self, *arguments)
        self._head_ids = some_ids

    monkeypatch.setattr(ModelProposer, "__init__", among_some)
    monkeypatch.setattr(type(pair.draft), "head_ids", lambda self: some_ids if self is pair.draft else None)
    assert not checked(pair, 0).draft_logits.passed


def test_every_setting_is_checked(pair, monkeypatch):
    settings = [
        settings_for(1, Warp(0.0, 1.0)),
        settings_for(2, Warp(2.0, 1.0)),
        settings_for(3, stop="entropy"),
        settings_for(4, proposer="early_exit"),
        settings_for(4, proposer="prompt_lookup"),
    ]
    used = []
    real = self_check.make_proposer
    monkeypatch.setattr(self_check, "make_proposer", lambda pair, how: used.append(how) or real(pair, how))
    outcome = checked(pair, 0, *settings)
    assert outcome.passed
    assert [(how.gamma, how.proposer, how.stop) for how in used[:6]] == [
        (1, "model", "none"),
        (2, "model", "none"),
        (3, "model", "entropy"),
        (4, "early_exit", "none"),
        (4, "prompt_lookup", "none"),
        (1, "model", "none"),
    ]
    assert outcome.verifier_logits.n_logits == outcome.distribution.n_tokens == 6 * 32


def test_copied_drafts_have_no_logits_to_check(pair):
    outcome = checked(pair, 0, settings_for(proposer="prompt_lookup"))
    assert outcome.draft_logits is None
    assert outcome.passed
    assert set(outcome.report()) == {"passed", "verifier_logits", "greedy", "distribution"}


def test_a_draft_that_misses_its_last_token_is_seen_by_its_logits_alone(pair, monkeypatch):
    real = ModelProposer.keep

    def forgetful(self, length):
        missing = length - self.cached.length
        real(self, length)
        if missing > 0:
            # The token is taken for cached, but what lies there is another one.
            self.cached.forward(torch.zeros(missing, dtype=torch.long), keep=1)

    monkeypatch.setattr(ModelProposer, "keep", forgetful)
    outcome = checked(pair, 0)
    assert not outcome.draft_logits.passed
    assert outcome.verifier_logits.passed
    assert outcome.distribution.passed


def test_a_rejected_token_left_in_the_verifier_is_seen(pair, monkeypatch):
    real = SpeculativeLoop._keep

    def stale(self, length):
        kept = min(length - 1, self.verifier.length)
        if kept < self.verifier.length:
            for layer in self.verifier._cache.layers:
                layer.keys[:, :, kept - 1] = layer.keys[:, :, kept]
                layer.values[:, :, kept - 1] = layer.values[:, :, kept]
        real(self, length)

    monkeypatch.setattr(SpeculativeLoop, "_keep", stale)
    assert not checked(pair, 0).verifier_logits.passed


def test_greedy_decoding_that_parts_at_a_clear_choice_fails(pair, monkeypatch):
    outcome = checked(pair, 0)
    near, clear = (dataclasses.replace(outcome.greedy, n_equal=3, top_two_gap=gap) for gap in (0.0, 100.0))
    assert dataclasses.replace(outcome, greedy=near).passed
    assert not dataclasses.replace(outcome, greedy=clear).passed


def test_places_are_uniform_for_draws_from_the_distribution_and_not_for_others():
    # Kolmogorov-Smirnov on 2000 draws; false alarm 1e-4.
    rng = np.random.default_rng(0)
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).repeat(2000, 1)
    honest = torch.from_numpy(rng.choice(4, 2000, p=[0.5, 0.3, 0.15, 0.05]))
    places = self_check.probability_places(logits, honest, Warp(1.0, 1.0), rng)
    assert stats.kstest(places, "uniform").pvalue > 1e-4
    other = torch.from_numpy(rng.choice(4, 2000, p=[0.4, 0.35, 0.2, 0.05]))
    places = self_check.probability_places(logits, other, Warp(1.0, 1.0), rng)
    assert stats.kstest(places, "uniform").pvalue < 1e-4
    outside = self_check.probability_places(logits[:1], torch.tensor([3]), Warp(1.0, 0.5), rng)
    assert outside == [1.0]


def test_a_shift_of_all_logits_is_no_difference_and_masked_ids_do_not_count():
    a = torch.tensor([1.0, 2.0, -torch.inf, 4.0])
    assert self_check.differences(a, a + 3.0) == pytest.approx((0.0, 0.0), abs=1e-6)
    assert self_check.differences(a, a + torch.tensor([1.0, -1.0, 0.0, 0.0])) == pytest.approx((1.0, (2 / 3) ** 0.5))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("ids", [slice(3, 4), slice(None)], ids=["one logit", "all logits"])
def test_logits_that_are_not_finite_fail_and_can_be_written(pair, monkeypatch, value, ids):
    real = self_check.uncached_logits

    def spoilt(model, text, keep):
        logits = real(model, text, keep).clone()
        logits[keep // 2, ids] = value
        return logits

    monkeypatch.setattr(self_check, "uncached_logits", spoilt)
    outcome = checked(pair, 0)
    assert not outcome.passed
    assert not outcome.verifier_logits.passed
    for report in (outcome.report(), outcome.report()["verifier_logits"], outcome.summary()):
        canonical_json(report)  # refuses NaN
        assert report["passed"] is False
    told = outcome.report()["verifier_logits"]
    assert told["largest_rms_difference"] is None
    assert "largest_rms_difference" in told["not_finite"]
    assert "verifier_rms" in outcome.summary()["not_finite"]
