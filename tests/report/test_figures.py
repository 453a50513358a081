from __future__ import annotations

import errno
import os
import warnings
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from analysed import FAST, SMALL, analysed
from matplotlib import _pylab_helpers
from matplotlib.figure import Figure
from synthetic import Plan, make_tables
from synthetic_versions import Shift, version_tables

from specstudy.analysis.measures import MEASURES, label
from specstudy.analysis.study import analyze
from specstudy.analysis.version_effects import unaltered_only
from specstudy.condition import Condition
from specstudy.errors import UserError
from specstudy.report import figures
from specstudy.report.chapters import sinks
from specstudy.report.figures import CAPTIONS, DRAWERS, draw_all
from specstudy.report.figures.trace import typical_prompt
from specstudy.report.narrative.interventions import kind_words
from specstudy.report.style import (
    category_marks,
    figure_style,
    interval,
    look,
    new_figure,
    number,
    p_value,
    percent,
    save,
    visible_token,
    wrapped,
)


@pytest.fixture(autouse=True)
def _no_warning_passes():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def laid_out_only(monkeypatch):
    """Files of figures stay empty: what draws and lays out is tested, and the bytes take most of the time."""
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, file, format, **_: format == "png" and figure.draw_without_rendering()
    )


OF_VERSIONS = {"version_effects", "version_pairs", "imposed_entropy", "lowered_sinks"}


def names_of(result, tables) -> set[str]:
    """The figures that are drawn, without their layout."""
    with figure_style():
        return {name for name, draw in DRAWERS.items() if draw(result, unaltered_only(tables))}


def test_every_figure_is_drawn_as_png_and_svg(drawn_study):
    here = [name for name in DRAWERS if name != "lowered_sinks"]  # of versions that this study does not have
    expected = [f"{name}.{kind}" for name in here for kind in ("png", "svg")]
    assert [path.name for path in drawn_study.figures] == expected
    assert set(CAPTIONS) == set(DRAWERS)
    for path in drawn_study.figures:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml")
        if path.suffix == ".svg":
            ElementTree.fromstring(content)


def test_what_compares_settings_needs_several():
    names = names_of(*analysed())
    by_gamma = {"acceptance_by_gamma", "tokens_by_gamma", "speedup_by_gamma", "breakeven_by_gamma"}
    others = {"distinct_experts", "bytes_and_clock", "retention_curves", "rule_differences", "acceptance_by_sampling"}
    assert names == set(DRAWERS) - by_gamma - others - OF_VERSIONS - {"head_links"}


@pytest.mark.parametrize("versions", ["poisoned", "hidden"])
def test_versions_are_drawn_beside_their_controls(versions, tmp_path, monkeypatch):
    result, tables = analysed(versions=versions)
    monkeypatch.setattr(figures, "DRAWERS", {name: DRAWERS[name] for name in OF_VERSIONS})
    names = {path.stem for path in draw_all(result, unaltered_only(tables), tmp_path)}
    assert names == {"version_effects", "version_pairs"}
    words = " ".join(" ".join(ElementTree.parse(tmp_path / "version_effects.svg").getroot().itertext()).split())
    assert "n = 15 prompts" in words
    assert ("contradictions added, dose 2" in words) == (versions == "poisoned")
    assert ("position 0 hidden from the verifier" in words) == (versions == "hidden")
    assert ("soft context health" in words) == (versions == "poisoned"), "a hidden position changes no prefill"


def test_lowered_keys_are_drawn_against_the_attention_that_moved():
    shifts = {"structural_lowered": Shift(entropy_bits=0.5, moved=0.1), "content_lowered": Shift(moved=0.02)}
    tables = version_tables("lowered", shifts, SMALL, noise=0.0)
    result = analyze(tables, FAST)
    figure = DRAWERS["lowered_sinks"](result, {})
    figure.draw_without_rendering()
    entropy, acceptance = figure.axes
    drawn = {line.get_label(): line.get_xydata() for line in entropy.get_lines() if len(line.get_xdata()) == 3}
    words = {kind: kind_words(kind) for kind in shifts}
    assert set(drawn) == set(words.values()), "what the verifier writes does not depend on the draft"
    assert drawn[words["structural_lowered"]] == pytest.approx(np.array([[0, 0], [0.1, 0.5], [0.2, 1.0]]))
    assert drawn[words["content_lowered"]] == pytest.approx(np.array([[0, 0], [0.02, 0], [0.04, 0]]), abs=1e-9)
    assert len([line for line in acceptance.get_lines() if len(line.get_xdata()) == 3]) == 4
    assert {text.get_text() for text in entropy.texts} == {"1", "2"}


def test_versions_that_were_not_measured_are_not_drawn(tmp_path):
    tables = version_tables("temperatures", {}, replace(SMALL, n_per_category=1))
    told = {"prompt_versions": tables["prompt_versions"]}
    assert draw_all(analyze(told, FAST), {}, tmp_path) == []


def test_only_settings_that_differ_in_gamma_alone_are_drawn_against_it():
    fixed = Condition(4, "model", "none", 0.7, 0.9)
    stopped = replace(fixed, gamma=8, stop="entropy", stop_threshold=0.3)
    result, _ = analysed(replace(SMALL, conditions=(fixed, replace(fixed, gamma=2), stopped)))
    for name in ("acceptance_by_gamma", "speedup_by_gamma", "tokens_by_gamma"):
        lines = DRAWERS[name](result, {}).axes[0].get_lines()
        assert all(
            line.get_xdata() == pytest.approx([2, 4], abs=0.2)
            for line in lines
            if len(line.get_xdata()) > 1 and line.get_label()[0] != "_"
        )


def test_without_timing_acceptance_is_drawn_all_the_same():
    tables = make_tables(replace(SMALL, gammas=(2, 4)))
    relative = [n for n in tables["spec_runs"] if n.startswith(("speedup", "theoretical", "cost_ratio_time"))]
    tables["spec_runs"] = tables["spec_runs"].assign(**dict.fromkeys(relative, np.nan))
    names = names_of(analyze(tables, FAST), tables)
    assert {"acceptance_by_gamma", "entropy_bound", "breakeven_by_gamma"} <= names


def test_texts_that_look_like_mathematics_or_markup_stay_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "DRAWERS", {"entropy_trace": DRAWERS["entropy_trace"]})
    _, path = draw_all(*analysed(Plan(n_answer_tokens=60)), tmp_path)
    svg = path.read_text(encoding="utf-8")
    texts = [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")]
    for token in ("·$$", "·a_b", "·<script>", "·שלום", "·日本"):
        assert token in texts
    assert "<script>" not in svg


def test_the_same_tables_give_the_same_files(tmp_path, monkeypatch):
    kept = ("sinks_by_role", "attention_to_entropy", "by_category")
    monkeypatch.setattr(figures, "DRAWERS", {name: DRAWERS[name] for name in kept})
    first, second = (draw_all(*analysed(), tmp_path / name) for name in "ab")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


@pytest.mark.parametrize("kept", [(), ("prefill",), ("decode",), ("spec",)])
def test_figures_whose_data_is_not_there_are_left_out(kept):
    names = names_of(*analysed(stages=kept))
    if not kept:
        assert names == set()
    if kept == ("prefill",):
        assert names == {
            "sinks_by_role",
            "first_token_attention",
            "thresholds",
            "soft_health_by_length",
            "context_matrix",
        }
    if kept == ("decode",):
        assert {"by_category", "entropy_trace", "acceptance_by_draft_entropy"} <= names
    if kept == ("spec",):
        assert {"by_category", "acceptance_by_round_index", "round_time"} <= names


TINY = Plan(n_per_category=1, n_answer_tokens=3)
ODD = Plan(n_per_category=1, categories=("odd $x$ a_b",), n_answer_tokens=2)


@pytest.mark.parametrize("plan", [TINY, ODD])
@pytest.mark.usefixtures("laid_out_only")
def test_small_and_odd_studies_are_drawn(tmp_path, plan):
    result, tables = analysed(plan)
    assert "entropy_trace" in {path.stem for path in draw_all(result, tables, tmp_path)}


def test_a_category_is_written_as_it_is(tmp_path, monkeypatch):
    result, tables = analysed(ODD)
    monkeypatch.setattr(figures, "DRAWERS", {"attention_to_entropy": DRAWERS["attention_to_entropy"]})
    _, svg = draw_all(result, tables, tmp_path)
    assert "odd $x$ a_b" in svg.read_text(encoding="utf-8")


@pytest.mark.usefixtures("laid_out_only")
def test_null_measures_do_not_stop_the_drawing(tmp_path):
    tables = make_tables(SMALL)
    tables["decode_tokens"] = tables["decode_tokens"].assign(draft_entropy_bits=np.nan, expected_accept=np.nan)
    tables["prefill_tokens"] = tables["prefill_tokens"].assign(z_score=np.nan)
    tables["spec_runs"] = tables["spec_runs"].assign(alpha_expected=np.nan)
    draw_all(analyze(tables, FAST), tables, tmp_path)


@pytest.mark.parametrize("refused", [1, 2], ids=["png", "svg"])
def test_a_disk_that_refuses_leaves_the_earlier_figure_whole(refused, tmp_path, monkeypatch):
    earlier = {path: path.read_bytes() for path in save(new_figure(), tmp_path, "a")}
    calls = []

    def sync(descriptor):
        calls.append(descriptor)
        if len(calls) >= 2 * refused - 1:  # a file, then its directory
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(UserError, match=r"cannot write .*: No space left on device"):
        save(new_figure(3, 2), tmp_path, "a")
    unchanged = [path.suffix for path in sorted(tmp_path.iterdir()) if path.read_bytes() == earlier[path]]
    assert unchanged == [".png", ".svg"][refused - 1 :]


@pytest.mark.usefixtures("laid_out_only")
def test_drawing_leaves_no_global_state(tmp_path):
    before = dict(matplotlib.rcParams)
    result, tables = analysed(TINY)
    draw_all(result, tables, tmp_path)
    assert dict(matplotlib.rcParams) == before
    assert _pylab_helpers.Gcf.figs == {}


def drawn_lines(figure) -> dict[str, str]:
    """The colour of each line that has a name."""
    lines = [line for axes in figure.axes for line in axes.get_lines()]
    return {line.get_label(): line.get_color() for line in lines if not line.get_label().startswith("_")}


def test_a_measure_has_one_name_and_one_colour_in_all_figures_of_a_chapter():
    result, _ = analysed(replace(SMALL, gammas=(2, 4)))
    names = ("acceptance_by_gamma", "tokens_by_gamma", "speedup_by_gamma", "breakeven_by_gamma")
    declared = {label(name): look(name)[0] for name in MEASURES}
    for name in names:
        lines = drawn_lines(DRAWERS[name](result, {}))
        assert lines == {words: declared[words] for words in lines}
        assert len(set(lines.values())) == len(lines), "two measures of a figure look alike"
    assert label("alpha") in lines


def test_rows_are_called_the_same_in_the_table_and_in_the_figure_beside_it():
    result, _ = analysed()
    context = sinks.CHAPTER.context(result, {}, {})
    told = {words for row in context["predictions"] for words in row[:2]}
    axes = DRAWERS["attention_predicted"](result, {}).axes[0]
    drawn = [text.get_text().replace("\n", " ") for text in (*axes.get_yticklabels(), *axes.texts)]
    assert drawn
    assert set(drawn) <= told


def test_a_category_looks_the_same_in_every_study():
    assert category_marks(["code", "math"])["code"] == category_marks(["ambiguous", "code", "mine"])["code"]
    marks = category_marks(["ambiguous", "code", "creative", "factual", "math", "mine", "yours"])
    assert len({mark.color for mark in marks.values()}) == len({mark.marker for mark in marks.values()}) == 7


def test_the_typical_prompt_has_the_median_entropy():
    prompts = analysed()[0].prompts
    chosen = prompts.loc[typical_prompt(prompts), "mean_entropy_bits"]
    assert (prompts["mean_entropy_bits"] <= chosen).sum() == 8


def test_numbers_and_tokens_for_people():
    assert number(-0.456) == "\N{MINUS SIGN}0.46"
    assert number(None) == number(float("nan")) == "\N{EN DASH}"
    assert interval(-0.5, 0.25) == "[\N{MINUS SIGN}0.50, 0.25]"
    assert interval(None, None) == ""
    assert p_value(0.0000123) == "< 0.001"
    assert [percent(confidence) for confidence in (0.95, 0.975, 0.999)] == ["95 %", "97.5 %", "99.9 %"]
    assert visible_token("\n a\t\x00") == "↵·a⇥�"
    assert wrapped("a label of several words", 10) == "a label of\nseveral\nwords"
