"""Tiny models in place of those that a study would load, and few figures: all are drawn in the tests of the report."""

from collections.abc import Iterator

import pytest
from tiny_study import tiny_pair

from specstudy.models.load import Pair
from specstudy.report import figures
from specstudy.running import workflow

FIGURES = ("by_category", "entropy_trace", "version_effects")


@pytest.fixture(autouse=True, scope="module")
def _few_figures() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "DRAWERS", {name: figures.DRAWERS[name] for name in FIGURES})
        yield


@pytest.fixture(scope="module")
def pair() -> Pair:
    return tiny_pair()


@pytest.fixture
def tiny_models(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "find_models", lambda config: lambda: pair)
