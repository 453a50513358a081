"""The trial of threads: what it chooses, and that it leaves the number of threads as it was."""

import dataclasses

import pytest
import tiny
import torch
from small_tokenizers import byte_level_tokenizer

from specstudy.measure.thread_trial import fastest, try_threads
from specstudy.models.load import Pair


@pytest.mark.parametrize(
    ("verifier_step_s", "chosen"),
    [({1: 0.026, 2: 0.017}, 2), ({1: 0.026, 2: 0.024}, 1), ({1: 0.026, 2: 0.030}, 1), ({1: 0.5, 16: 0.449}, 16)],
)
def test_all_cores_are_taken_only_if_they_shorten_a_step_by_a_tenth(verifier_step_s, chosen):
    assert fastest(verifier_step_s) == chosen


def test_both_models_are_timed_with_each_number_of_threads(monkeypatch):
    tokenizer = byte_level_tokenizer()
    verifier, draft = (dataclasses.replace(tiny.llama(seed, vocab_size=256), vocabulary=256) for seed in (1, 2))
    monkeypatch.setattr("specstudy.measure.thread_trial.TRIAL_S", 0.0)
    before = torch.get_num_threads()
    found = try_threads(Pair(verifier, draft, tokenizer, (255,)), (1, 2))
    assert torch.get_num_threads() == before
    for times in (found.verifier, found.draft):
        assert list(times) == [1, 2]
        assert min(times.values()) > 0
