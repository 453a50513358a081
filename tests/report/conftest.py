"""One study with every table and every figure, drawn once; its texts are as hostile as users' can be."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from analysed import FAST
from synthetic import Plan
from synthetic_retention import with_retention
from synthetic_routing import with_routing
from synthetic_versions import version_tables

from specstudy.analysis.join import Tables
from specstudy.analysis.study import AnalysisResult, analyze
from specstudy.analysis.version_effects import unaltered_only
from specstudy.condition import Condition
from specstudy.report.figures import draw_all

NASTY = '</style><script>alert("x")</script>'


@dataclass(frozen=True)
class DrawnStudy:
    """An analysed study and the files of its figures, in `directory`."""

    result: AnalysisResult
    tables: Tables
    figures: list[Path]
    directory: Path


@pytest.fixture(scope="session")
def drawn_study(tmp_path_factory: pytest.TempPathFactory) -> DrawnStudy:
    fixed = Condition(4, "model", "none", 0.7, 0.9)
    others = {"gamma": 2}, {"stop": "entropy", "stop_threshold": 0.2}, {"temperature": 1.0}
    conditions = (fixed, *(replace(fixed, **changes) for changes in others))
    plan = Plan(n_per_category=2, n_answer_tokens=24, conditions=conditions, repetitions=2, heads=2)
    tables = with_retention(with_routing(version_tables("temperatures", {}, plan)))
    for name in ("decode_tokens", "spec_tokens", "prefill_tokens"):
        tables[name].loc[tables[name]["token_id"] == 3, "token"] = NASTY
    for frame in tables.values():
        for column in {"prompt_id", "control_id"}.intersection(frame):
            frame.loc[frame[column] == "code-01~unaltered", column] = f"code'\"-{NASTY}"
        if "category" in frame:
            frame.loc[frame["category"] == "math", "category"] = f"math {NASTY}"
    result, shown, directory = analyze(tables, FAST), unaltered_only(tables), tmp_path_factory.mktemp("figures")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return DrawnStudy(result, shown, draw_all(result, shown, directory), directory)
