"""What is said of moved links: every reading in a sentence, with the numbers that it rests on; and the chapter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from markupsafe import escape
from synthetic import Plan, make_tables
from synthetic_versions import Shift, version_tables

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.study import analyze
from specstudy.analysis.version_effects import unaltered_only
from specstudy.records import LinkVerdict
from specstudy.report import html
from specstudy.report.narrative.interventions import KINDS, link_sentence

FAST = AnalysisSettings(bootstrap_samples=100)
PLAN = Plan(n_per_category=3, n_answer_tokens=12)
ROW = LinkVerdict(
    link="attention to entropy",
    kind="irrelevant",
    dose=2,
    moved="context_health_soft",
    moved_difference=-0.6,
    moved_ci_low=-0.8,
    moved_ci_high=-0.4,
    watched="mean_entropy_bits",
    n=50,
    watched_difference=0.4,
    watched_ci_low=0.2,
    watched_ci_high=0.6,
    p_adjusted=0.001,
    control_difference=-0.1,
    control_ci_low=-0.3,
    control_ci_high=0.1,
    reading="as_claimed",
)
HEALTH = "by -0.60 [-0.80, -0.40]".replace("-", "\N{MINUS SIGN}")
BEGUN = f"Irrelevant sentences added, dose 2: moved soft context health {HEALTH}; "
CONTROL = "; the control moved it by -0.10 [-0.30, 0.10] (n = 50 prompts).".replace("-", "\N{MINUS SIGN}")
UNMEASURED = "not answered, for want of prompts that have mean entropy of the answer."
RISEN = "mean entropy of the answer by +0.40 [0.20, 0.60]"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, f"{BEGUN}{RISEN}, as the chain claims{CONTROL}"),
        ({"reading": "other_way"}, f"{BEGUN}{RISEN}, against what the chain claims{CONTROL}"),
        (
            {"reading": "not_shown"},
            f"{BEGUN}mean entropy of the answer was not shown to follow (by +0.40 [0.20, 0.60]){CONTROL}",
        ),
        (
            {"reading": "not_moved"},
            f"Irrelevant sentences added, dose 2: did not clearly move soft context health ({HEALTH}), "
            "so it tells nothing of this link.",
        ),
        (
            {"reading": "not_measured"},
            f"Irrelevant sentences added, dose 2: {UNMEASURED}",
        ),
        (
            {"kind": "hidden_first", "dose": 0, "moved": None, "control_difference": None},
            f"Position 0 hidden from the verifier: {RISEN}, as the chain claims (n = 50 prompts).",
        ),
    ],
)
def test_every_reading_is_a_sentence_with_its_numbers(changes: dict[str, object], said: str) -> None:
    assert link_sentence(replace(ROW, **changes)) == said


@pytest.mark.parametrize("which", ["poisoned", "hidden", "temperatures"])
def test_the_chapter_says_what_moved_and_names_every_kind(which: str, tmp_path: Path) -> None:
    shifts = {"irrelevant": Shift(health=-1, entropy_bits=1), "hidden_first": Shift(entropy_bits=1)}
    tables = version_tables(which, shifts, PLAN)
    assert set(tables["prompt_versions"]["kind"]) <= set(KINDS)
    result = analyze(tables, FAST)
    html.render(result, unaltered_only(tables), {}, tmp_path, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    chapter = page[page.index('<section id="interventions"') :]
    chapter = chapter[: chapter.index("</section>")]
    n_versions = tables["prompt_versions"]["kind"].size // 15
    assert f"Each of 15 prompts was asked in {n_versions} versions" in chapter
    for row in result.interventions.links:
        assert escape(link_sentence(row)) in chapter
    assert chapter.count("<li>") >= len(result.interventions.links)
    assert ("change per dose" in chapter) == (which != "hidden")


def test_an_ordinary_study_has_no_such_chapter(tmp_path: Path) -> None:
    tables = make_tables(PLAN)
    html.render(analyze(tables, FAST), tables, {}, tmp_path, tmp_path / "report.html")
    assert 'id="interventions"' not in (tmp_path / "report.html").read_text(encoding="utf-8")
