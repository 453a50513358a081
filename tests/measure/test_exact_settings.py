"""The emitted distribution is the verifier's at every temperature and nucleus, for pairs of unlike models.

For each emitted token its place in the verifier's own distribution p, recomputed without a cache, is uniform if it was
drawn from it. Ids are laid out by how much more of them the draft has than the verifier, q - p, so that an engine which
leans to the draft shows. Kolmogorov-Smirnov over 240 tokens, fixed seeds; an honest engine fails one setting with
probability 1e-4, the wrong rules below fail it.
"""

from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch
from scipy import stats

from specstudy.measure import sampling
from specstudy.measure.decode import GenerationSettings, generate
from specstudy.measure.proposers import ModelProposer
from specstudy.measure.sampling import Warp
from specstudy.measure.self_check import probability_places
from specstudy.measure.speculative import SpeculativeLoop

LEVEL = 1e-4
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


def answer_of(pair, warp, n=240, gamma=3, prompt=PROMPT, seed=0, eos=()):
    verifier, draft = pair
    settings = GenerationSettings(warp, n, tuple(eos), 3)
    return SpeculativeLoop(verifier, ModelProposer(draft), prompt, settings, gamma, np.random.default_rng(seed)).run()


def near_pair():
    """A draft close to the verifier: rounds of every kind."""
    verifier, draft = tiny.llama(1), tiny.llama(1)
    noise = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in draft.module.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=noise))
    return verifier, draft


def places_of(pair, warp, seed):
    """Beyond 1 for a token that the verifier would never have emitted."""
    answer = torch.tensor(answer_of(pair, warp, seed=seed).token_ids)
    text = [*PROMPT, *answer[:-1].tolist()]
    p_logits, q_logits = (tiny.uncached_logits(model, text)[len(PROMPT) - 1 :] for model in pair)
    p, q = (
        sampling.warp(logits, replace(warp, candidates=None)).dense(tiny.VOCABULARY) for logits in (p_logits, q_logits)
    )
    order = (q - p).argsort(-1)
    answers_place = (order == answer[:, None]).long().argmax(-1)
    places = probability_places(p_logits.gather(-1, order), answers_place, warp, np.random.default_rng(seed))
    return np.where(p.gather(-1, answer[:, None])[:, 0] > 0, places, 2.0)


def p_value(pair, warp, n_texts=1):
    """Of Kolmogorov's and Smirnov's test; 0 where a token is impossible."""
    places = np.concatenate([places_of(pair, warp, seed) for seed in range(n_texts)])
    return stats.kstest(places, "uniform").pvalue if places.max() < 2.0 else 0.0


@pytest.mark.parametrize("top_p", TOP_PS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_every_temperature_and_nucleus(temperature, top_p):
    assert p_value(near_pair(), Warp(temperature, top_p)) > LEVEL


@pytest.mark.parametrize("names", UNLIKE.values(), ids=UNLIKE)
def test_draft_and_verifier_of_different_families(names):
    pair = models(*names)
    assert p_value(pair, Warp(1.0, 0.9)) > LEVEL
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
    assert p_value(padded, Warp(2.0, 1.0)) > LEVEL


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


FAULTS = {
    "accepting whatever is drafted": ("acceptance_probability", lambda p, q: torch.ones_like(p)),
    "a correction drawn from p": ("residual", lambda p, q: p),
    "a test against the draft's certainty": ("acceptance_probability", lambda p, q: p),
}


def test_an_honest_engine_over_a_thousand_tokens():
    assert p_value(near_pair(), Warp(1.0, 0.9), n_texts=4) > LEVEL


@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_rules_are_seen_over_a_thousand_tokens(fault, monkeypatch):
    monkeypatch.setattr(sampling, *FAULTS[fault])
    assert p_value(near_pair(), Warp(1.0, 0.9), n_texts=4) < LEVEL
