"""Answers of one prompt decoded as one batch: each is what it would be alone, float32 rounding apart."""

import numpy as np
import pytest
import tiny
import torch

from specstudy.measure.decode import Generation, GenerationSettings, generate, generate_rows
from specstudy.measure.finite import NotFiniteError
from specstudy.measure.sampling import Warp
from specstudy.models.cache import CachedModel

PROMPT = [3, 5, 7, 11, 2, 40, 9, 9, 31, 4]
CONFIGURATIONS = tiny.configurations()
SEEDS = (0, 1, 2)


def alone(model: tiny.LanguageModel, settings: GenerationSettings) -> list[Generation]:
    return [generate(model, PROMPT, settings, np.random.default_rng(seed)) for seed in SEEDS]


def together(model: tiny.LanguageModel, settings: GenerationSettings) -> list[Generation]:
    return generate_rows(model, PROMPT, settings, [np.random.default_rng(seed) for seed in SEEDS])


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_each_row_is_the_answer_that_its_generator_gives_alone(name):
    model = tiny.language_model(CONFIGURATIONS[name], seed=1)
    settings = GenerationSettings(Warp(1.0, 0.9), 20, (), 3)
    for row, single in zip(together(model, settings), alone(model, settings), strict=True):
        assert row.token_ids == single.token_ids
        for ours, theirs in zip(row.steps, single.steps, strict=True):
            assert ours.entropy_bits == pytest.approx(theirs.entropy_bits, abs=1e-4)
            assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-4)
            assert ours.sampling_entropy_bits == pytest.approx(theirs.sampling_entropy_bits, abs=1e-4)
            assert ours.top_ids == theirs.top_ids


def test_each_row_has_its_own_end():
    model = tiny.llama(1)
    free = alone(model, GenerationSettings(Warp(1.0, 0.9), 20, (), 3))
    ends = GenerationSettings(Warp(1.0, 0.9), 20, (free[0].token_ids[2], free[1].token_ids[7]), 3)
    rows = together(model, ends)
    assert [row.token_ids for row in rows] == [single.token_ids for single in alone(model, ends)]
    assert len(rows[0].token_ids) <= 3
    assert len(rows[1].token_ids) <= 8
    assert {row.finish_reason for row in rows[:2]} == {"eos"}
    for row in rows:
        assert len(row.forward_s) == len(row.step_s) == len(row.steps)
        assert sum(row.step_s) == pytest.approx(row.decode_s)
        assert all(forward <= step for forward, step in zip(row.forward_s, row.step_s, strict=True))
        assert row.ttft_s > 0
    by_length = sorted(rows, key=lambda row: len(row.steps))
    assert [row.decode_s for row in by_length] == sorted(row.decode_s for row in rows)


def test_a_wide_nucleus_of_one_row_changes_no_other_row():
    model = tiny.llama(1)
    narrow = GenerationSettings(Warp(3.0, 0.999, candidates=2), 10, (), 3)
    assert [row.token_ids for row in together(model, narrow)] == [single.token_ids for single in alone(model, narrow)]


def test_repeating_rows_leaves_the_single_row_as_it_was():
    model = tiny.llama(1)
    cached = CachedModel(model)
    cached.prefill(torch.tensor(PROMPT[:-1]))
    rows = cached.repeated(3)
    rows.forward_rows(torch.tensor([1, 2, 3]))
    assert (cached.length, rows.length) == (len(PROMPT) - 1, len(PROMPT))
    cached.check_length()
    rows.check_length()
    expected = tiny.uncached_logits(model, PROMPT)[-1:]
    torch.testing.assert_close(cached.forward(torch.tensor(PROMPT[-1:]), keep=1), expected)


def test_what_an_ended_row_gives_is_dropped_and_a_running_row_is_not(monkeypatch):
    model = tiny.llama(1)
    first = alone(model, GenerationSettings(Warp(1.0, 0.9), 1, (), 3))[0].token_ids[0]
    settings = GenerationSettings(Warp(1.0, 0.9), 5, (first,), 3)
    real = CachedModel.forward_rows

    def spoilt(row: int):
        def forward_rows(self, ids):
            logits = real(self, ids)
            if self.length > len(PROMPT):
                logits[row] = torch.nan
            return logits

        return forward_rows

    expected = [single.token_ids for single in alone(model, settings)]
    assert len(expected[0]) == 1 < len(expected[1])
    monkeypatch.setattr(CachedModel, "forward_rows", spoilt(0))
    assert [row.token_ids for row in together(model, settings)] == expected
    monkeypatch.setattr(CachedModel, "forward_rows", spoilt(1))
    with pytest.raises(NotFiniteError):
        together(model, settings)
