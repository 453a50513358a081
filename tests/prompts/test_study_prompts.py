"""The study's own prompts: five categories on one ladder of lengths, no two alike, none of them trained on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import combinations

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from specstudy.config import PROJECT_ROOT
from specstudy.distill.prompts import distillation_prompts
from specstudy.models.embedded import ensure_embedded_verifier
from specstudy.overrides import study_config
from specstudy.prompts import Prompt, read_prompts, render
from specstudy.running.workflow import chosen_prompts

CATEGORIES = ("factual", "creative", "code", "math", "ambiguous")
N_DISTILLATION_PROMPTS = 15_000
COPIED_WORDS = 9


@pytest.fixture(scope="module")
def prompts() -> list[Prompt]:
    return read_prompts(PROJECT_ROOT / "data/prompts/study50.jsonl")


@pytest.fixture(scope="module")
def study200() -> list[Prompt]:
    return read_prompts(PROJECT_ROOT / "data/prompts/study200.jsonl")


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(ensure_embedded_verifier())


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def runs_of_words(text: str) -> set[tuple[str, ...]]:
    found = words(text)
    return set(zip(*(found[i:] for i in range(COPIED_WORDS)), strict=False))


def test_ten_prompts_a_category(prompts: list[Prompt]) -> None:
    assert Counter(p.category for p in prompts) == dict.fromkeys(CATEGORIES, 10)
    assert [p.prompt_id for p in prompts] == [f"{c}-{i:02d}" for c in CATEGORIES for i in range(1, 11)]
    assert {p.system for p in prompts} == {None}


def test_every_category_has_the_same_ladder_of_lengths(
    prompts: list[Prompt], tokenizer: PreTrainedTokenizerBase
) -> None:
    lengths: dict[str, list[int]] = {category: [] for category in CATEGORIES}
    for prompt in prompts:
        positions = render(prompt, tokenizer).positions
        lengths[prompt.category].append(sum(not p.is_structural for p in positions))
    [ladder] = {tuple(ls) for ls in lengths.values()}
    assert list(ladder) == sorted(ladder)
    assert all(28 <= n <= 45 for n in ladder[:4])
    assert all(100 <= n <= 140 for n in ladder[4:7])
    assert all(250 <= n <= 500 for n in ladder[7:])


@pytest.mark.parametrize("experiment", ["gamma_sweep", "sampling_sweep", "stop_rules"])
def test_an_experiment_on_some_of_them_spans_the_ladder(experiment: str) -> None:
    chosen, _ = chosen_prompts(study_config([f"experiment={experiment}"]))
    steps = [[int(p.prompt_id[-2:]) for p in chosen if p.category == category] for category in CATEGORIES]
    assert all(numbers in ([1, 4, 6, 10], [1, 4, 7, 10]) for numbers in steps)


def test_the_two_hundred_are_the_fifty_and_those_kept_for_confirmation(
    prompts: list[Prompt], study200: list[Prompt]
) -> None:
    assert study200 == [*prompts, *read_prompts(PROJECT_ROOT / "data/prompts/confirm.jsonl")]


def test_no_two_prompts_are_alike(study200: list[Prompt]) -> None:
    assert len({p.prompt_id for p in study200}) == len({p.text for p in study200}) == 200
    runs = {p.prompt_id: runs_of_words(p.text) for p in study200}
    for one, other in combinations(runs, 2):
        of_one_subject = one.count("-") == 2 and one.rpartition("-")[0] == other.rpartition("-")[0]
        assert of_one_subject or runs[one].isdisjoint(runs[other]), (one, other, runs[one] & runs[other])


def test_none_is_among_the_prompts_that_the_draft_was_distilled_on(study200: list[Prompt]) -> None:
    trained_on = _all_runs(p.text for p in distillation_prompts(N_DISTILLATION_PROMPTS, seed=0))
    assert len(trained_on) > N_DISTILLATION_PROMPTS
    for prompt in study200:
        assert not runs_of_words(prompt.text) & trained_on, prompt.prompt_id


def _all_runs(texts: Iterable[str]) -> set[tuple[str, ...]]:
    return set().union(*map(runs_of_words, texts))
