"""Made-up studies, analysed once in a test run: whoever asks again for the same one is given the same result."""

from __future__ import annotations

from functools import cache

from synthetic import Plan, make_tables
from synthetic_versions import Shift, version_tables

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.join import Tables
from specstudy.analysis.study import AnalysisResult, analyze

FAST = AnalysisSettings(bootstrap_samples=100)
SMALL = Plan(n_per_category=3, n_answer_tokens=24, repetitions=2)
SHIFTS = {"irrelevant": Shift(health=-1, entropy_bits=1), "hidden_first": Shift(entropy_bits=1)}


@cache
def analysed(
    plan: Plan = SMALL, stages: tuple[str, ...] | None = None, versions: str = ""
) -> tuple[AnalysisResult, Tables]:
    """A study and its tables, none of them to be changed; only those of `stages`, if given, were measured."""
    tables = version_tables(versions, SHIFTS, plan) if versions else make_tables(plan)
    if stages is not None:
        tables = {name: frame for name, frame in tables.items() if stages and name.startswith(stages)}
    return analyze(tables, FAST), tables
