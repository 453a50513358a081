"""The prompts kept for confirmation: ten subjects a category, each asked at three exact lengths.

Nothing but a tokenizer may see them here: they answer questions only as long as no result on them has been looked at.
"""

from __future__ import annotations

from collections import Counter

import pytest
from transformers import AutoTokenizer

from specstudy.config import PROJECT_ROOT
from specstudy.models.embedded import ensure_embedded_verifier
from specstudy.prompts import Prompt, read_prompts, render

CATEGORIES = ("factual", "creative", "code", "math", "ambiguous")
LENGTHS = (28, 120, 400)
TOLERANCE = 2


@pytest.fixture(scope="module")
def confirm() -> list[Prompt]:
    return read_prompts(PROJECT_ROOT / "data/prompts/confirm.jsonl")


def parts(prompt: Prompt) -> tuple[str, str, int]:
    """What an id says: category, subject and length."""
    category, subject, length = prompt.prompt_id.split("-")
    return category, subject, int(length)


def test_every_category_has_ten_subjects_each_at_every_length(confirm: list[Prompt]) -> None:
    subjects = list(dict.fromkeys(parts(p)[:2] for p in confirm))
    assert Counter(category for category, _ in subjects) == dict.fromkeys(CATEGORIES, 10)
    assert len({subject for _, subject in subjects}) == 50
    assert [parts(p) for p in confirm] == [(*subject, length) for subject in subjects for length in LENGTHS]
    assert all(p.category == parts(p)[0] and p.system is None and not p.history for p in confirm)


def test_the_content_is_as_long_as_the_id_says(confirm: list[Prompt]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(ensure_embedded_verifier())
    for prompt in confirm:
        rendered = render(prompt, tokenizer)
        n_content = sum(not p.is_structural for p in rendered.positions)
        assert abs(n_content - parts(prompt)[2]) <= TOLERANCE, (prompt.prompt_id, n_content)
        assert prompt.text in rendered.text


def test_a_subject_asks_the_same_question_at_every_length(confirm: list[Prompt]) -> None:
    for question, short, long in zip(confirm[::3], confirm[1::3], confirm[2::3], strict=True):
        for prompt in (short, long):
            assert prompt.text.endswith("\n\n" + question.text), prompt.prompt_id


def test_texts_are_plain_and_without_stray_white_space(confirm: list[Prompt]) -> None:
    for prompt in confirm:
        assert prompt.text.isascii(), prompt.prompt_id
        assert prompt.text == prompt.text.strip(), prompt.prompt_id
        for line in prompt.text.split("\n"):
            assert line.isprintable(), (prompt.prompt_id, line)
            assert line == line.rstrip(), (prompt.prompt_id, line)
