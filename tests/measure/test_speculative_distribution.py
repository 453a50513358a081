"""Sampled speculative tokens have the verifier's distribution, and the test sees the faults that are made in practice.

Chi-square over the exact joint distribution of the first two tokens, 700 generations, fixed seeds. Honest engines are
flagged with probability 1e-4; a planted fault must be flagged at the same level.
"""

import numpy as np
import pytest
import tiny
import torch
from scipy import stats

from specstudy.measure import sampling, speculative
from specstudy.measure.decode import GenerationSettings
from specstudy.measure.proposers import ModelProposer
from specstudy.measure.sampling import Warp
from specstudy.measure.speculative import SpeculativeLoop

N_GENERATIONS = 700
LEVEL = 1e-4
PROMPT = [3, 1, 2]
WARP = Warp(1.3, 0.8)
SMALL = {"vocab_size": 7, "num_hidden_layers": 1}


@pytest.fixture(scope="module")
def pair():
    models = [tiny.llama(seed, **SMALL) for seed in (4, 5)]
    return [type(m)(**{**vars(m), "vocabulary": 7}) for m in models]


def warped(model, ids):
    return sampling.warp(tiny.uncached_logits(model, ids)[-1:], WARP).dense(7)[0]


def exact_joint(verifier):
    """Probability of every pair of first two tokens."""
    first = warped(verifier, PROMPT)
    return torch.stack([first[i] * warped(verifier, [*PROMPT, i]) for i in range(7)])


def p_value(pair, gamma=2):
    verifier, draft = pair
    counts = np.zeros((7, 7))
    settings = GenerationSettings(WARP, 3, (), 3)
    for seed in range(N_GENERATIONS):
        loop = SpeculativeLoop(verifier, ModelProposer(draft), PROMPT, settings, gamma, np.random.default_rng(seed))
        first, second = loop.run().token_ids[:2]
        counts[first, second] += 1
    expected = exact_joint(verifier).double().numpy() * N_GENERATIONS
    if counts[expected == 0].sum():
        return 0.0
    likely = expected >= 5
    observed = np.append(counts[likely], counts[~likely].sum())
    wanted = np.append(expected[likely], expected[~likely].sum())
    wanted *= observed.sum() / wanted.sum()
    return stats.chisquare(observed[wanted > 0], wanted[wanted > 0]).pvalue


def test_the_honest_engine(pair):
    assert p_value(pair) > LEVEL


def test_a_ratio_with_the_drafts_raw_softmax_is_seen(pair, monkeypatch):
    real = speculative.verify

    def with_raw_q(logits, proposal, warp, uniforms):
        raw = torch.softmax(proposal.logits, -1)
        return real(logits, type(proposal)(**{**vars(proposal), "q": raw}), warp, uniforms)

    monkeypatch.setattr(speculative, "verify", with_raw_q)
    assert p_value(pair) < LEVEL


def test_a_rejected_token_left_in_the_verifiers_cache_is_seen(pair, monkeypatch):
    def forgetful(self, length):
        # The cache keeps everything; only the count is set back.
        self.verifier.length = min(length - 1, self.verifier.length)
        self.proposer.keep(length - 1)

    monkeypatch.setattr(SpeculativeLoop, "_keep", forgetful)
    assert p_value(pair) < LEVEL
