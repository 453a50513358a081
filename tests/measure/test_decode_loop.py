"""The verifier's own loop: every number of a step against plain transformers calls."""

import math

import numpy as np
import pytest
import tiny
import torch

from specstudy.measure import decode, sampling
from specstudy.measure import teacher_forced as teacher_forced_module
from specstudy.measure.decode import GenerationSettings
from specstudy.measure.sampling import Warp
from specstudy.measure.sinks import answer_sums
from specstudy.measure.teacher_forced import teacher_forced
from specstudy.models.cache import CachedModel
from specstudy.models.load import Pair

PROMPT = [3, 5, 7, 11, 2, 40]
CONFIGURATIONS = tiny.configurations()


def settings_for(n, warp, eos=()):
    return GenerationSettings(warp=warp, max_new_tokens=n, eos_ids=tuple(eos), n_candidates=3)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_entropy_and_probabilities_equal_those_of_generates_logits(name):
    model = tiny.language_model(CONFIGURATIONS[name], seed=1)
    output = model.module.generate(
        torch.tensor([PROMPT]),
        max_new_tokens=20,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    generation = decode.generate(model, PROMPT, settings_for(20, Warp(0.0, 1.0)), np.random.default_rng(0))
    assert generation.token_ids == output.sequences[0, len(PROMPT) :].tolist()
    for step, logits in zip(generation.steps, output.logits, strict=True):
        logprobs = torch.log_softmax(logits[0].double(), -1)
        entropy = float(-(logprobs.exp() * logprobs).sum() / math.log(2))
        assert step.entropy_bits == pytest.approx(entropy, abs=1e-4)
        assert step.logprob == pytest.approx(float(logprobs[step.token_id]), abs=1e-4)
        assert step.sampling_entropy_bits == 0.0
        top = logprobs.topk(3)
        assert step.top_ids == top.indices.tolist()
        assert step.top_probs == pytest.approx(top.values.exp().tolist(), abs=1e-4)


def test_sampling_entropy_is_that_of_the_warped_distribution():
    model = tiny.llama(1)
    warp = Warp(0.7, 0.9)
    generation = decode.generate(model, PROMPT, settings_for(10, warp), np.random.default_rng(0))
    for index, step in enumerate(generation.steps):
        logits = tiny.uncached_logits(model, PROMPT + generation.token_ids[:index])[-1:]
        p = sampling.warp(logits, warp).dense(tiny.VOCABULARY)[0].double().numpy()
        assert p[step.token_id] > 0
        assert step.sampling_entropy_bits == pytest.approx(-(p[p > 0] * np.log2(p[p > 0])).sum(), abs=1e-4)
        assert step.sampling_entropy_bits < step.entropy_bits


def test_padded_ids_have_no_part_in_entropy_or_draws():
    full = tiny.llama(1)
    padded = type(full)(**{**vars(full), "vocabulary": 50, "unused_ids": torch.tensor([0, 7])})
    generation = decode.generate(padded, PROMPT, settings_for(60, Warp(3.0, 1.0)), np.random.default_rng(0))
    assert padded.n_emittable == 48
    assert all(i < 50 and i not in (0, 7) for i in generation.token_ids)
    assert max(step.entropy_bits for step in generation.steps) <= math.log2(48)


@pytest.mark.parametrize("block", [3, 256])
def test_teacher_forcing_equals_uncached_passes(block, monkeypatch):
    monkeypatch.setattr(teacher_forced_module, "BLOCK_TOKENS", block)
    verifier, draft = tiny.llama(1), tiny.llama(2)
    pair = Pair(verifier, draft, None, ())
    warp, answer = Warp(0.7, 0.9), [9, 4, 33, 12, 50, 8, 8]
    forced = teacher_forced(pair, PROMPT, answer, warp)
    for index in range(len(answer)):
        text = PROMPT + answer[:index]
        p_logits, q_logits = (tiny.uncached_logits(m, text)[-1:] for m in (verifier, draft))
        p, q = (sampling.warp(logits, warp).dense(tiny.VOCABULARY) for logits in (p_logits, q_logits))
        assert forced.expected_accept[index] == pytest.approx(float(torch.minimum(p, q).sum()), abs=1e-4)
        raw = float(sampling.raw_statistics(q_logits).entropy_bits)
        assert forced.draft_entropy_bits[index] == pytest.approx(raw, abs=1e-4)
        first, second = q_logits[0].softmax(-1).topk(2).values.tolist()
        assert forced.draft_top_prob[index] == pytest.approx(first, abs=1e-5)
        assert forced.draft_top_margin[index] == pytest.approx(first - second, abs=1e-5)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_teacher_forcing_goes_on_from_the_cache_of_the_answer(name):
    verifier = tiny.language_model(CONFIGURATIONS[name], seed=1)
    pair = Pair(verifier, tiny.llama(2), None, ())
    warp, cached = Warp(0.7, 0.9), CachedModel(verifier)
    settings, long_prompt = settings_for(20, warp), PROMPT * 3
    generation = decode.generate(verifier, long_prompt, settings, np.random.default_rng(0), cached)
    assert generation.token_ids == decode.generate(verifier, long_prompt, settings, np.random.default_rng(0)).token_ids
    going_on = teacher_forced(pair, long_prompt, generation.token_ids, warp, None, cached)
    assert going_on.expected_accept == pytest.approx(
        teacher_forced(pair, long_prompt, generation.token_ids, warp).expected_accept, abs=1e-6
    )
    assert cached.length == len(long_prompt) + 19


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_attention_from_generated_tokens_counts_the_answers_queries_only(name):
    model = tiny.language_model(CONFIGURATIONS[name], seed=1)
    answer = [9, 4, 33, 12]
    usual = model.module.config._attn_implementation
    model.module.set_attn_implementation("eager")
    with torch.no_grad():
        maps = model.module(input_ids=torch.tensor([PROMPT + answer]), output_attentions=True).attentions
    model.module.set_attn_implementation(usual)
    expected = torch.stack([m[0, :, len(PROMPT) :, : len(PROMPT)] for m in maps]).mean((0, 1, 2))
    cached = CachedModel(model)
    cached.prefill(torch.tensor(PROMPT))
    found = decode.attention_from_generated(answer_sums(cached, PROMPT, answer), len(PROMPT), len(answer))
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-8)
