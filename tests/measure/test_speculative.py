"""The speculative loop: equal to plain decoding, caches exact after every round, ends where it must."""

import itertools
from dataclasses import replace

import attention_models
import numpy as np
import pytest
import tiny
import torch

from specstudy.measure.decode import GenerationSettings, generate
from specstudy.measure.proposers import ModelProposer, entropy_stop
from specstudy.measure.sampling import WIDTHS, Warp
from specstudy.measure.speculative import SpeculativeLoop
from specstudy.models.shallow import FrequentIdsHead

PROMPT = [3, 5, 7, 11, 2, 40]
GREEDY = Warp(0.0, 1.0)
CONFIGURATIONS = {**attention_models.by_function(), **attention_models.by_maps()}


def settings_for(n, warp=GREEDY, eos=()):
    return GenerationSettings(warp=warp, max_new_tokens=n, eos_ids=tuple(eos), n_candidates=3)


def loop_for(verifier, proposer, n, gamma, warp=GREEDY, eos=(), seed=0, prompt=PROMPT, draft_temperature=None):
    settings = replace(settings_for(n, warp, eos), draft_temperature=draft_temperature)
    return SpeculativeLoop(verifier, proposer, prompt, settings, gamma, np.random.default_rng(seed))


def plain_greedy(model, n, prompt=PROMPT):
    output = model.module.generate(
        torch.tensor([prompt]), max_new_tokens=n, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    return output[0, len(prompt) :].tolist()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_greedy_output_equals_generate_for_every_gamma(name):
    verifier = tiny.language_model(CONFIGURATIONS[name], seed=1)
    draft = tiny.language_model(CONFIGURATIONS[name], seed=2)
    expected = plain_greedy(verifier, 24)
    assert generate(verifier, PROMPT, settings_for(24), np.random.default_rng(0)).token_ids == expected
    for gamma in (1, 2, 3, 5, 8):
        assert loop_for(verifier, ModelProposer(draft), 24, gamma).run().token_ids == expected


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("gamma", [1, 2, 4, 8])
def test_a_draft_that_is_the_verifier_is_always_right(name, gamma):
    verifier = tiny.language_model(CONFIGURATIONS[name], seed=1)
    generation = loop_for(verifier, ModelProposer(verifier), 2 * (gamma + 1), gamma).run()
    assert [r.n_accepted for r in generation.rounds] == [gamma, gamma]
    assert [len(r.emitted) for r in generation.rounds] == [gamma + 1, gamma + 1]


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("pattern", [[True], [False], [True, False], [True, True, True, False, False]])
def test_cached_logits_equal_uncached_ones_after_every_round(name, pattern):
    verifier = tiny.language_model(CONFIGURATIONS[name], seed=1)
    proposer = tiny.ScriptedProposer(verifier, itertools.cycle(pattern))
    loop = loop_for(verifier, proposer, 30, 4)
    loop.verifier.prefill(loop.text[: len(PROMPT) - 1])
    for index in range(5):
        loop.round(index, 4)
        text = loop.text[: loop.length].tolist()
        assert loop.verifier.length == loop.length - 1
        loop.verifier.check_length()
        logits = loop.verifier.forward(loop.text[loop.length - 1 : loop.length], keep=1)
        torch.testing.assert_close(logits[0], tiny.uncached_logits(verifier, text)[-1], atol=2e-4, rtol=1e-4)
        loop.verifier.rollback(loop.length - 1)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_drafts_cache_is_exact_after_rejections_and_full_acceptances(name):
    # At temperature 1 with a draft near the verifier, rounds of both kinds occur.
    verifier = tiny.language_model(CONFIGURATIONS[name], seed=1)
    draft = tiny.language_model(CONFIGURATIONS[name], seed=1)
    noise = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in draft.module.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=noise))
    proposer = ModelProposer(draft)
    loop = loop_for(verifier, proposer, 60, 3, warp=Warp(1.0, 1.0))
    loop.verifier.prefill(loop.text[: len(PROMPT) - 1])
    proposer.prefill(loop.text[: len(PROMPT) - 1])
    accepted = []
    for index in range(15):
        accepted.append(loop.round(index, 3).n_accepted)
        cached = proposer.cached
        assert cached.length <= loop.length - 1
        cached.check_length()
        seen = cached.length
        missing = loop.text[seen : loop.length]
        logits = cached.forward(missing, keep=1)
        text = loop.text[: loop.length].tolist()
        torch.testing.assert_close(logits[0], tiny.uncached_logits(draft, text)[-1], atol=2e-4, rtol=1e-4)
        cached.rollback(seen)
    assert 3 in accepted
    assert min(accepted) < 3


def test_counts_of_a_round_with_one_early_rejection():
    # Passes 1, 0, 1, 0: accepted 1, tested 2, proposed 4; what follows the rejection is no evidence.
    verifier = tiny.llama(1)
    loop = loop_for(verifier, tiny.ScriptedProposer(verifier, iter([True, False, True, False])), 10, 4)
    loop.verifier.prefill(loop.text[: len(PROMPT) - 1])
    result = loop.round(0, 4)
    assert (result.n_accepted, result.n_tested, result.n_proposed) == (1, 2, 4)
    assert result.emitted == plain_greedy(verifier, 2)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_never_more_than_max_new_tokens_even_if_gamma_is_larger(n):
    verifier = tiny.llama(1)
    generation = loop_for(verifier, ModelProposer(verifier), n, 8).run()
    assert generation.token_ids == plain_greedy(verifier, n)
    assert generation.finish_reason == "length"
    assert sum(r.n_proposed for r in generation.rounds) == n - 1


def test_a_prompt_of_one_token():
    verifier, draft = tiny.llama(1), tiny.llama(2)
    expected = plain_greedy(verifier, 9, prompt=[7])
    assert loop_for(verifier, ModelProposer(draft), 9, 3, prompt=[7]).run().token_ids == expected
    assert generate(verifier, [7], settings_for(9), np.random.default_rng(0)).token_ids == expected


@pytest.mark.parametrize("place", range(8))
def test_an_accepted_eos_ends_the_text_inside_a_block(place):
    verifier = tiny.llama(1)
    expected = plain_greedy(verifier, 12)
    eos = expected[place]
    first = expected.index(eos)
    generation = loop_for(verifier, ModelProposer(verifier), 12, 4, eos=[eos, 999]).run()
    assert generation.token_ids == expected[: first + 1]
    assert generation.finish_reason == "eos"
    last = generation.rounds[-1]
    assert last.n_proposed == last.n_accepted == last.n_tested == (first % 5 + 1 if first % 5 < 4 else 4)
    plain = generate(verifier, PROMPT, settings_for(12, eos=[eos]), np.random.default_rng(0))
    assert plain.token_ids == expected[: first + 1]


def test_nothing_after_a_drafted_eos_is_counted_even_if_it_is_rejected():
    verifier = tiny.llama(1)
    best = plain_greedy(verifier, 2)
    wrong = (best[1] + 1) % tiny.VOCABULARY
    loop = loop_for(verifier, tiny.ScriptedProposer(verifier, iter([True, False, True, True])), 10, 4, eos=[wrong])
    loop.verifier.prefill(loop.text[: len(PROMPT) - 1])
    result = loop.round(0, 4)
    assert (result.n_proposed, result.n_tested, result.n_accepted) == (2, 2, 1)
    assert result.emitted == best


def test_a_nucleus_wider_than_the_candidates_changes_nothing_but_the_work():
    verifier, draft = tiny.llama(1), tiny.llama(2)
    narrow = loop_for(verifier, ModelProposer(draft), 20, 3, warp=Warp(2.0, 0.99, 4))
    narrow.draft_warp = Warp(2.0, 0.99, 4)
    wide = loop_for(verifier, ModelProposer(draft), 20, 3, warp=Warp(2.0, 0.99, None))
    found, expected = narrow.run(), wide.run()
    assert found.token_ids == expected.token_ids
    for ours, theirs in zip(found.rounds, expected.rounds, strict=True):
        for name, values in ours.drafted.items():
            np.testing.assert_allclose(values, theirs.drafted[name], rtol=1e-5)
    assert narrow.draft_warp.candidates == narrow.verifier_warp.candidates == WIDTHS[0]


@pytest.mark.parametrize("warp", [Warp(1.0, 0.9), Warp(0.7, 1.0), Warp(0.0, 1.0), Warp(2.0, 0.99, 4)])
def test_a_head_over_few_ids_drafts_as_if_its_logits_stood_among_all(warp, monkeypatch):
    verifier, draft = tiny.llama(1), replace(tiny.llama(2), unused_ids=torch.tensor([5]))
    ids = torch.randperm(tiny.VOCABULARY, generator=torch.Generator().manual_seed(0))[:20]
    ids = torch.cat([ids[ids != 5], torch.tensor([5])])
    draft.module.lm_head = FrequentIdsHead(draft.module.lm_head.weight, ids)
    assert draft.head_ids().tolist() == sorted(set(ids.tolist()) - {5})
    few = loop_for(verifier, ModelProposer(draft), 20, 3, warp=warp).run()
    monkeypatch.setattr(type(draft), "head_ids", lambda self: None)
    among_all = loop_for(verifier, ModelProposer(draft), 20, 3, warp=warp).run()
    assert few.token_ids == among_all.token_ids
    assert {int(i) for r in few.rounds for i in r.drafted["token_id"]} <= set(ids.tolist()) - {5}
    for ours, theirs in zip(few.rounds, among_all.rounds, strict=True):
        for name, values in ours.drafted.items():
            np.testing.assert_allclose(values, theirs.drafted[name], rtol=1e-5, atol=1e-6)


def test_no_pass_is_repeated_for_a_verifiers_wide_nucleus(monkeypatch):
    verifier, draft = tiny.llama(1), tiny.llama(2)
    passes = []
    monkeypatch.setattr(verifier.module, "forward", noting(passes, verifier.module.forward))
    loop = loop_for(verifier, ModelProposer(draft), 20, 3, warp=Warp(2.0, 0.99, 4), draft_temperature=0.0)
    generation = loop.run()
    assert loop.verifier_warp.candidates == WIDTHS[0]
    assert loop.draft_warp.candidates == WIDTHS[0]
    assert len(passes) == 1 + len(generation.rounds)
    plain = loop_for(verifier, ModelProposer(draft), 20, 3, warp=Warp(2.0, 0.99, None), draft_temperature=0.0)
    assert generation.token_ids == plain.run().token_ids


def noting(calls, real):
    def method(*args, **kwargs):
        calls.append(kwargs)
        return real(*args, **kwargs)

    return method


def test_the_same_seed_gives_the_same_rounds_and_another_seed_others():
    verifier, draft = tiny.llama(1), tiny.llama(2)
    runs = [loop_for(verifier, ModelProposer(draft), 40, 3, warp=Warp(1.0, 0.9), seed=s).run() for s in (0, 0, 1)]
    assert runs[0].token_ids == runs[1].token_ids != runs[2].token_ids


def test_passes_of_the_draft_are_counted_where_a_rule_stopped_it_or_a_drafted_eos_ended_the_text():
    verifier, draft = tiny.llama(1), tiny.llama(2)
    stopped = loop_for(verifier, ModelProposer(draft, entropy_stop(0.0, tiny.VOCABULARY)), 8, 4).run()
    assert {(r.stopped_early, r.n_proposed, r.n_draft_passes) for r in stopped.rounds if r.n_proposed} == {
        (True, 1, 2),
        (False, 1, 1),  # where no more than one was asked for
    }
    second = plain_greedy(verifier, 2)[1]
    ended = loop_for(verifier, ModelProposer(verifier), 20, 4, eos=[second]).run()
    assert [(r.n_proposed, r.n_draft_passes) for r in ended.rounds] == [(2, 4)]


def test_emitted_tokens_add_up():
    verifier, draft = tiny.llama(1), tiny.llama(2)
    generation = loop_for(verifier, ModelProposer(draft), 33, 4, warp=Warp(1.0, 0.9)).run()
    assert len(generation.token_ids) == sum(len(r.emitted) for r in generation.rounds) == 33
    assert all(r.n_tested in (r.n_accepted, r.n_accepted + 1) for r in generation.rounds)
