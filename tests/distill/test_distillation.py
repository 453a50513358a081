"""Distillation on a tiny verifier: what is sampled, stored, chosen and trained; an interruption costs nothing."""

import math

import pytest
import tiny
import torch
from safetensors.torch import load_file

from specstudy.distill import sample
from specstudy.distill.data import (
    NOT_IN_HEAD,
    Batch,
    collate,
    epoch_batches,
    frequent_ids,
    head_positions,
    read_shards,
    unpack,
)
from specstudy.distill.prompts import distillation_prompts
from specstudy.distill.sample import SamplingPlan, prompt_batches, sample_answers, write_shard
from specstudy.distill.train import (
    Student,
    Trainer,
    TrainingPlan,
    cross_entropy_nats,
    evaluate,
    expected_acceptance,
    learning_rate_factor,
)

PROMPTS = [torch.tensor(ids) for ids in ([3, 5, 7, 11, 2, 40], [9, 8], [1, 2, 3, 4])]
PLAN = SamplingPlan(max_new_tokens=12, answers_per_prompt=2)


@pytest.fixture(scope="module")
def verifier():
    return tiny.llama(1, vocab_size=300)


@pytest.fixture
def shards(verifier, tmp_path):
    for index in range(6):
        answers = sample_answers(verifier.module, PROMPTS, PLAN, index, [299])
        write_shard(tmp_path / f"shard-{index:05d}.safetensors", answers)
    return tmp_path


def test_prompts_are_distinct_repeatable_and_balanced():
    prompts = distillation_prompts(2000, 0)
    assert len({p.text for p in prompts}) == 2000
    assert distillation_prompts(500, 0) == prompts[:500]
    assert distillation_prompts(500, 1) != prompts[:500]
    assert {sum(p.category == c for p in prompts) for c in {p.category for p in prompts}} == {400}


def test_batches_use_every_short_prompt_once_and_a_third_of_the_long_ones():
    plan = SamplingPlan(prompts_per_batch=4, long_prompt_tokens=10)
    lengths = [5, 20] * 30
    used = sorted(i for batch in prompt_batches(lengths, plan) for i in batch)
    assert used == [i for i in range(60) if i % 2 == 0 or i % 3 == 0]


def test_a_batch_depends_on_its_index_alone_and_padding_changes_nothing(verifier):
    together = sample_answers(verifier.module, PROMPTS, PLAN, 4, [299])
    again = sample_answers(verifier.module, PROMPTS, PLAN, 4, [299])
    assert torch.equal(together.ids, again.ids)
    for row, prompt in enumerate(together.prompts):
        text = [*prompt.tolist(), *together.ids[row].tolist()]
        logprobs = torch.log_softmax(verifier.module(input_ids=torch.tensor([text])).logits[0], -1)
        expected = logprobs[len(prompt) - 1 : -1].gather(-1, together.top_ids[row])
        torch.testing.assert_close(together.top_logprobs[row], expected, atol=2e-4, rtol=1e-4)


def test_answers_follow_the_plan_of_their_batch():
    assert PLAN.warp_of_batch(3) == (1.0, 1.0)
    assert PLAN.warp_of_batch(4) == (0.7, 0.9)
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05] + [0.0] * 300]).clamp(min=1e-30)).repeat(2000, 1)
    narrow = sample._draw(logits, 1.0, 0.6, torch.Generator().manual_seed(0))
    assert set(narrow.tolist()) == {0, 1}
    wide = sample._draw(logits, 1.0, 1.0, torch.Generator().manual_seed(0))
    counts = torch.bincount(wide, minlength=4)[:4] / 2000
    torch.testing.assert_close(counts, torch.tensor([0.5, 0.3, 0.15, 0.05]), atol=0.04, rtol=0)


def test_shards_hold_what_was_sampled_and_whole_batches_are_held_out(verifier, shards):
    answers = sample_answers(verifier.module, PROMPTS, PLAN, 0, [299])
    examples = unpack(load_file(str(shards / "shard-00000.safetensors")))
    for row, example in enumerate(examples):
        length = int(answers.lengths[row])
        assert example.tokens.tolist() == [*answers.prompts[row].tolist(), *answers.ids[row, :length].tolist()]
        assert example.prompt_length == len(answers.prompts[row])
        assert torch.equal(example.top_ids.long(), answers.top_ids[row, :length])
    training, held_out = read_shards(shards)
    assert (len(training), len(held_out)) == (4 * 6, 2 * 6)


def test_the_head_holds_the_likeliest_ids_and_those_that_must_be_there(shards):
    training, _ = read_shards(shards)
    mass = torch.zeros(300)
    for example in training:
        mass.index_add_(0, example.top_ids.long().flatten(), example.top_logprobs.float().exp().flatten())
    ids = frequent_ids(training, 50, 300, [299])
    assert 299 in ids
    assert ids.tolist() == sorted(ids.tolist())
    assert mass[ids[ids != 299]].min() >= mass[[i for i in range(300) if i not in ids.tolist()]].max()


def by_hand():
    """One position; the head is ids 4 and 9; the teacher gives ids 4, 9, 2 probabilities .5, .3, .2."""
    return Batch(
        ids=torch.zeros(1, 1, dtype=torch.long),
        wanted=torch.tensor([0]),
        head_index=head_positions(torch.tensor([4, 9]), 20)[torch.tensor([[4, 9, 2]])],
        logprobs=torch.tensor([[0.5, 0.3, 0.2]]).log(),
    )


def test_loss_and_acceptance_by_hand():
    batch = by_hand()
    assert batch.head_index.tolist() == [[0, 1, NOT_IN_HEAD]]
    logits = torch.tensor([[0.8, 0.2]]).log()
    expected = -(0.625 * math.log(0.8) + 0.375 * math.log(0.2))
    assert cross_entropy_nats(logits, batch).item() == pytest.approx(expected, rel=1e-5)
    assert expected_acceptance(logits, batch, 1.0, 1.0).item() == pytest.approx(0.5 + 0.2)
    # A nucleus of 0.75 keeps ids 4 and 9 of the teacher and id 4 of the student.
    assert expected_acceptance(logits, batch, 1.0, 0.75).item() == pytest.approx(0.625)


def test_padding_is_not_learned_from(shards):
    training, _ = read_shards(shards)
    batch = collate(training[:6], torch.arange(300))
    assert len(batch.wanted) == sum(e.n_answer_tokens for e in training[:6])
    for row, example in enumerate(training[:6]):
        inside = [int(i) - row * batch.ids.shape[1] for i in batch.wanted if i // batch.ids.shape[1] == row]
        assert inside == list(range(example.prompt_length - 1, len(example.tokens) - 1))


def test_a_pass_uses_every_example_once_in_an_order_of_its_own(shards):
    training, _ = read_shards(shards)
    passes = [[id(e) for batch in epoch_batches(training, 4, 0, epoch) for e in batch] for epoch in (0, 0, 1)]
    assert passes[0] == passes[1] != passes[2]
    assert sorted(passes[2]) == sorted(id(e) for e in training)


def trainer(verifier, shards, checkpoint, steps):
    training, held_out = read_shards(shards)
    plan = TrainingPlan(layers=(0, 2), head_size=60, steps=steps, warmup_steps=2, matrix_learning_rate=1e-2)
    ids = frequent_ids(training, plan.head_size, 300, [299])
    positions = head_positions(ids, 300)
    torch.manual_seed(0)
    student = Student(verifier.module, plan.layers, ids)
    return Trainer(student, lambda: training, plan, positions, checkpoint), held_out, plan, positions


def test_training_makes_the_draft_better_and_only_its_own_layers_change(verifier, shards, tmp_path):
    run, held_out, plan, positions = trainer(verifier, shards, tmp_path / "c.pt", 60)
    before = evaluate(run.student, held_out, plan, positions)
    embedding = run.student.body.embed_tokens.weight.clone()
    run.run(lambda step, loss: None)
    after = evaluate(run.student, held_out, plan, positions)
    assert after.cross_entropy_nats < before.cross_entropy_nats
    assert after.expected_acceptance > before.expected_acceptance
    assert torch.equal(run.student.body.embed_tokens.weight, embedding)
    assert run.step == 60
    assert len(run.tokens_by_pass) == 15
    assert run.n_trained_tokens == sum(run.tokens_by_pass)


def test_an_interrupted_training_goes_on_from_its_checkpoint(verifier, shards, tmp_path):
    class Interruption(Exception):
        pass

    def interrupt(step, loss):
        raise Interruption

    first, *_ = trainer(verifier, shards, tmp_path / "c.pt", 12)
    with pytest.raises(Interruption):
        first.run(interrupt, save_every=8)
    second, *_ = trainer(verifier, shards, tmp_path / "c.pt", 12)
    assert second.step == 8
    assert second.n_trained_tokens == first.n_trained_tokens
    assert 0 < first.n_trained_tokens < 12 * sum(first.tokens_by_pass)
    for a, b in zip(first.student.trained(), second.student.trained(), strict=True):
        assert torch.equal(a, b)
    second.run(lambda step, loss: None)
    assert second.step == 12


def test_a_checkpoint_of_another_plan_is_not_gone_on_from(verifier, shards, tmp_path):
    short, *_ = trainer(verifier, shards, tmp_path / "c.pt", 4)
    short.run(lambda step, loss: None)
    long, *_ = trainer(verifier, shards, tmp_path / "c.pt", 8)
    assert long.step == 0
    assert long.plan.name != short.plan.name


def test_the_learning_rate_rises_stays_and_falls():
    plan = TrainingPlan(steps=100, warmup_steps=10, decay_share=0.3)
    factors = [learning_rate_factor(step, plan) for step in range(100)]
    assert factors[0] == pytest.approx(0.1)
    assert set(factors[9:70]) == {1.0}
    assert factors[85] == pytest.approx(0.5)
    assert factors[99] == pytest.approx(1 / 30)
