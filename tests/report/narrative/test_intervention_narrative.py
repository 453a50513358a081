"""Sentences about interventions: every reading with its numbers; and the chapter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from analysed import analysed
from markupsafe import escape

from specstudy.analysis.version_effects import unaltered_only
from specstudy.records import LinkVerdict
from specstudy.report import html
from specstudy.report.narrative.interventions import KINDS, link_sentence, mass_sentences

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
HEALTH = "by -0.60 [-0.80, -0.40]"
WATCHED = "mean entropy of the answer"
RISEN = "by +0.40 [0.20, 0.60]"
CONTROL = "by -0.10 [-0.30, 0.10]"


@pytest.mark.parametrize(
    ("changes", "parts", "absent"),
    [
        ({}, ["dose 2", HEALTH, f"{WATCHED} changed {RISEN}, as claimed", CONTROL, "n = 50"], []),
        ({"reading": "other_way"}, [f"{RISEN}, opposite", CONTROL], ["as claimed"]),
        ({"reading": "not_shown"}, [f"{WATCHED} did not significantly change ({RISEN})", CONTROL], ["as claimed"]),
        ({"reading": "not_moved"}, ["not significantly change soft context health", HEALTH, "not tested"], [RISEN]),
        ({"reading": "not_measured"}, [f"{WATCHED} was not measured"], [RISEN, HEALTH]),
        (
            {"kind": "hidden_first", "dose": 0, "moved": None, "control_difference": None},
            ["Position 0", f"{RISEN}, as claimed"],
            ["dose", HEALTH, "control"],
        ),
    ],
)
def test_every_reading_has_its_numbers(changes: dict[str, object], parts: list[str], absent: list[str]) -> None:
    said = link_sentence(replace(ROW, **changes)).replace("\N{MINUS SIGN}", "-")
    assert all(part in said for part in parts)
    assert not any(part in said for part in absent)


@pytest.mark.parametrize("which", ["poisoned", "hidden", "lowered", "temperatures"])
def test_the_chapter_says_what_moved_and_names_every_kind(which: str, tmp_path: Path) -> None:
    result, tables = analysed(versions=which)
    assert set(tables["prompt_versions"]["kind"]) <= set(KINDS)
    html.render(result, unaltered_only(tables), {}, tmp_path, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    chapter = page[page.index('<section id="interventions"') :]
    chapter = chapter[: chapter.index("</section>")]
    n_versions = tables["prompt_versions"]["kind"].size // 15
    assert f"15 prompts was run in {n_versions} versions" in chapter
    for row in result.interventions.links:
        assert escape(link_sentence(row)) in chapter
    assert chapter.count("<li>") >= len(result.interventions.links)
    assert ("change per dose" in chapter) == (which != "hidden")
    masses = mass_sentences(result.interventions.versions)
    assert len(masses) == (8 if which == "lowered" else 0)
    assert all(escape(sentence) in chapter for sentence in masses)
    assert ("Attention really moved" in chapter) == (which == "lowered")


def test_the_mass_that_moved_is_told_by_kind_and_amount() -> None:
    versions = pd.DataFrame(
        {
            "kind": ["unaltered", *["structural_lowered"] * 3],
            "lowered_by": [np.nan, 1.0, 1.0, 4.0],
            "mass_before": [np.nan, 0.5, 0.7, 0.6],
            "mass_after": [np.nan, 0.3, 0.4, 0.1],
        }
    )
    once, four = mass_sentences(versions)
    assert "by 1: of the verifier's attention it got 0.600, then 0.350 (n = 2" in once
    assert "by 4: of the verifier's attention it got 0.600, then 0.100 (n = 1" in four


def test_an_ordinary_study_has_no_such_chapter(tmp_path: Path) -> None:
    html.render(*analysed(), {}, tmp_path, tmp_path / "report.html")
    assert 'id="interventions"' not in (tmp_path / "report.html").read_text(encoding="utf-8")
