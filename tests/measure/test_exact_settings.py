"""The emitted distribution is the verifier's at every temperature and nucleus, for pairs of unlike models.

For each emitted token its place in the verifier's own distribution, recomputed without a cache, is uniform if it was
drawn from it. Kolmogorov-Smirnov over about 200 tokens, fixed seeds; an honest engine fails one setting with
probability 1e-5. A token outside the nucleus fails at once.
"""

from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch
from scipy import stats

from specstudy.measure import speculative
from specstudy.measure.decode import GenerationSettings, generate
from specstudy.measure.proposers import ModelProposer
from specstudy.measure.sampling import Warp
from specstudy.measure.self_check import probability_places
from specstudy.measure.speculative import SpeculativeLoop

LEVEL = 1e-5
PROMPT = [3, 5, 7, 11, 2, 40]
CONFIGURATIONS = tiny.configurations()
UNLIKE = {
    "sliding window, learned positions": ("sliding window", "learned positions"),
    "learned positions, alternating": ("learned positions", "alternating"),
    "soft-capped, experts": ("soft-capped", "experts"),
    "shared experts, own head size": ("shared experts", "own head size"),
    "alternating, tied": ("alternating", "tied"),
}
TEMPERATURES = (0.0, 0.01, 0.7, 1.0, 2.0)
TOP_PS = (1e-8, 0.5, 0.9, 1.0)


def models(verifier, draft):
    return tiny.language_model(CONFIGURATIONS[verifier], seed=1), tiny.language_model(CONFIGURATIONS[draft], seed=2)


def answer_of(pair, warp, n=200, gamma=3, prompt=PROMPT, seed=0, eos=()):
    verifier, draft = pair
    settings = GenerationSettings(warp, n, tuple(eos), 3)
    return SpeculativeLoop(verifier, ModelProposer(draft), prompt, settings, gamma, np.random.default_rng(seed)).run()


def places_of(pair, warp, **how):
    answer = answer_of(pair, warp, **how).token_ids
    logits = tiny.uncached_logits(pair[0], [*PROMPT, *answer[:-1]])[len(PROMPT) - 1 :]
    return np.array(probability_places(logits, torch.tensor(answer), warp, np.random.default_rng(99)))


@pytest.mark.parametrize("top_p", TOP_PS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_every_temperature_and_nucleus(temperature, top_p):
    places = places_of(models("llama", "tied"), Warp(temperature, top_p))
    assert places.max() < 1.0
    assert stats.kstest(places, "uniform").pvalue > LEVEL


@pytest.mark.parametrize("names", UNLIKE.values(), ids=UNLIKE)
def test_draft_and_verifier_of_different_families(names):
    pair = models(*names)
    places = places_of(pair, Warp(1.0, 0.9))
    assert places.max() < 1.0
    assert stats.kstest(places, "uniform").pvalue > LEVEL
    greedy = Warp(0.0, 1.0)
    plain = generate(pair[0], PROMPT, GenerationSettings(greedy, 40, (), 3), np.random.default_rng(0)).token_ids
    assert answer_of(pair, greedy, n=40).token_ids == plain


def test_padded_vocabularies_of_different_sizes():
    padded = [
        replace(tiny.llama(seed, vocab_size=rows), vocabulary=tiny.VOCABULARY, unused_ids=torch.tensor([7, 60]))
        for seed, rows in ((1, 64), (2, 80))
    ]
    answer = answer_of(padded, Warp(2.0, 1.0)).token_ids
    assert max(answer) < tiny.VOCABULARY
    assert not {7, 60} & set(answer)
    assert stats.kstest(places_of(padded, Warp(2.0, 1.0)), "uniform").pvalue > LEVEL


@pytest.mark.parametrize("warp", [Warp(0.0, 1.0), Warp(1.0, 0.9)], ids=str)
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("prompt", [[7], PROMPT], ids=["one token", "six tokens"])
def test_the_shortest_answers(warp, n, prompt):
    generation = answer_of(models("llama", "tied"), warp, n=n, gamma=8, prompt=prompt)
    assert len(generation.token_ids) == n
    assert generation.finish_reason == "length"


@pytest.mark.parametrize("seed", range(8))
def test_whichever_of_several_ends_comes_first_ends_the_text(seed):
    pair, warp = models("llama", "tied"), Warp(1.0, 0.9)
    whole = answer_of(pair, warp, n=40, seed=seed).token_ids
    ends = {whole[12], whole[25]}
    first = next(i for i, token in enumerate(whole) if token in ends)
    ended = answer_of(pair, warp, n=40, seed=seed, eos=ends)
    assert ended.token_ids == whole[: first + 1]
    assert ended.finish_reason == "eos"


def test_a_wrong_ratio_is_seen_by_this_test(monkeypatch):
    real = speculative.verify

    def with_raw_q(logits, proposal, warp, uniforms):
        return real(logits, replace(proposal, q=torch.softmax(proposal.logits, -1)), warp, uniforms)

    monkeypatch.setattr(speculative, "verify", with_raw_q)
    assert stats.kstest(places_of(models("llama", "tied"), Warp(0.7, 0.5), n=600), "uniform").pvalue < LEVEL
