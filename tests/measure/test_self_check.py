"""The self-check passes on an honest engine and fails on planted faults; its parts by hand."""

import dataclasses

import numpy as np
import pytest
import tiny
import torch
from rotary_models import longrope
from scipy import stats
from torch.nn import functional
from transformers import MistralConfig
from transformers.cache_utils import DynamicSlidingWindowLayer

from specstudy.measure import rounding, sampling, self_check
from specstudy.measure.checked_texts import far_prompts
from specstudy.measure.decode import GenerationSettings
from specstudy.measure.logit_differences import differences
from specstudy.measure.proposers import ModelProposer
from specstudy.measure.sampling import Warp
from specstudy.measure.self_check import run_self_check
from specstudy.measure.speculation_records import SpeculationSettings
from specstudy.measure.speculative import SpeculativeLoop
from specstudy.models.cache import CachedModel
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
    assert set(outcome.report()) == {"passed", "verifier_logits", "greedy", "distribution", "attention"}


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


@pytest.mark.parametrize("pair", ["bfloat16"], indirect=True)
def test_both_greedy_loops_are_held_against_passes_without_a_cache(pair, monkeypatch):
    real = sampling.warp

    def second_best(logits, warp):
        warped = real(logits, warp)
        if warp.temperature == 0.0 and float(logits[-1].topk(2).values.diff().abs()) > 1.0:
            last = logits.topk(2).indices[:, 1:]
            return dataclasses.replace(warped, ids=last.expand_as(warped.ids).contiguous())
        return warped

    assert checked(pair, 0).greedy.passed
    monkeypatch.setattr(sampling, "warp", second_best)
    greedy = checked(pair, 0).greedy
    assert not greedy.passed
    assert greedy.largest_gap > 1.0


def test_rounding_allows_no_more_than_its_ceiling():
    scale = 2.0
    by_rounding = [0.0, 1e-3, 4.7, np.nan]
    assert [rounding.limit(torch.float32, r, scale) for r in by_rounding] == pytest.approx(
        [2e-4, 2e-3, 2e-3, np.nan], nan_ok=True
    )
    assert rounding.limit(torch.bfloat16, 0.05, scale) == pytest.approx(0.1)
    assert rounding.limit(torch.bfloat16, 14.9, scale, rounding.GAP) == pytest.approx(1.0)
    assert np.isnan(rounding.limit(torch.float32, 1e-3, np.nan))


@pytest.mark.parametrize(("dtype", "n"), [(torch.float32, 0), (torch.bfloat16, 4)])
def test_only_a_router_in_half_precision_may_move_single_rows(dtype, n):
    experts = tiny.language_model(tiny.configurations()["experts"])
    experts.module.to(dtype)
    assert rounding.n_may_lie_beyond(experts, 45) == n
    dense = tiny.llama()
    dense.module.to(dtype)
    assert rounding.n_may_lie_beyond(dense, 45) == 0


def test_a_fault_that_the_library_shares_is_no_rounding():
    # The text crosses the place where every frequency changes, what is cached does not.
    pair = Pair(longrope(0, 24), longrope(1, 24), None, ())
    prompt = [[3, 5, 7, 11] * 4]

    def outcome(n):
        return run_self_check(pair, prompt, [settings_for(n=n)], np.random.default_rng)

    assert outcome(8).passed
    crossing = outcome(16)
    assert not crossing.verifier_logits.passed
    assert crossing.verifier_logits.limit_rms < 0.01
    assert not crossing.greedy.passed


def test_the_longest_text_and_both_sides_of_a_window_are_looked_at():
    window = tiny.language_model(tiny.configurations()["sliding window"])  # of 8
    pair = Pair(tiny.llama(), window, None, ())
    prompts = [[1, 2, 3, 4], list(range(10, 30))]
    far = far_prompts(pair, prompts, max_new_tokens=100)
    assert [len(prompt) for prompt in far] == [1, 20 + 100 - 32]
    assert far[1] == [*range(10, 30)] * 4 + list(range(10, 18))
    assert [len(prompt) for prompt in far_prompts(pair, prompts, max_new_tokens=6)] == [5, 20]
    assert [len(prompt) for prompt in far_prompts(pair, prompts[1:], max_new_tokens=6)] == [20]
    plain = Pair(tiny.llama(), tiny.llama(), None, ())
    assert [len(prompt) for prompt in far_prompts(plain, prompts, max_new_tokens=100)] == [88]


def test_a_window_that_closes_too_early_is_seen_where_a_text_crosses_it(monkeypatch):
    configuration = MistralConfig(**tiny._COMMON, sliding_window=16)
    pair = Pair(tiny.language_model(configuration), tiny.llama(1), None, ())
    prompts = [[3, 5, 7, 11]]
    far = far_prompts(pair, prompts, max_new_tokens=40)
    real = CachedModel.rollback

    def forgetful(self, length):
        real(self, length)
        for layer in self._cache.layers:
            if isinstance(layer, DynamicSlidingWindowLayer) and length > 16:
                layer.keys, layer.values = layer.keys.clone(), layer.values.clone()
                layer.keys[:, :, 0] = 0.0
                layer.values[:, :, 0] = 0.0

    def outcome(prompts):
        return run_self_check(pair, prompts, [settings_for(n=8)], np.random.default_rng)

    assert outcome(far).passed
    monkeypatch.setattr(CachedModel, "rollback", forgetful)
    assert outcome(prompts).passed  # of twelve tokens at most
    assert not outcome(far).verifier_logits.passed


@pytest.mark.parametrize("pair", ["bfloat16"], indirect=True)
def test_a_later_token_that_every_pass_sees_is_seen_by_the_attention_check(pair, monkeypatch):
    real = functional.scaled_dot_product_attention

    def leaking(query, key, value, attn_mask=None, is_causal=False, **given):
        # Each query sees the next key too.
        n, n_keys = query.shape[-2], key.shape[-2]
        if is_causal:
            attn_mask = torch.ones(n, n_keys, dtype=torch.bool).tril(n_keys - n + 1)
        return real(query, key, value, attn_mask=attn_mask, **given)

    assert checked(pair, 0).attention.n_compared == 6
    monkeypatch.setattr(functional, "scaled_dot_product_attention", leaking)
    outcome = checked(pair, 0)
    assert not outcome.attention.passed
    assert not outcome.passed


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
    assert differences(a, a + 3.0) == pytest.approx((0.0, 0.0), abs=1e-6)
    assert differences(a, a + torch.tensor([1.0, -1.0, 0.0, 0.0])) == pytest.approx((1.0, (2 / 3) ** 0.5))


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
