"""Tiny models in place of those that a study would load."""

import pytest
from tiny_study import tiny_pair

from specstudy.models.load import Pair
from specstudy.running import workflow


@pytest.fixture(scope="module")
def pair() -> Pair:
    return tiny_pair()


@pytest.fixture
def tiny_models(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "find_models", lambda config: lambda: pair)
