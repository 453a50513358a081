from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from analysed import FAST, SMALL, analysed
from rich.cells import cell_len
from synthetic import Plan, make_tables

from specstudy.analysis.study import analyze
from specstudy.errors import UserError
from specstudy.report import claims_terminal, terminal
from specstudy.report.checks import checks_sentence
from specstudy.report.console import report_console
from specstudy.report.narrative.overview import models_sentence

LOADED = {"verifier": {"name": "Big", "note": "Q4_1, dequantised"}, "draft": {"name": "Small", "note": ""}}
MANIFEST = {"config": {"models": {"verifier": "big", "draft": "small"}, "prompts": {"name": "study50"}}}


def summary_of(result, tables, capsys) -> str:
    terminal.summary(result, tables, MANIFEST, Path("outputs/a-long-name-of-a-run-directory-1a2b3c4d"))
    return capsys.readouterr().out


def is_plain_and_narrow(text: str) -> bool:
    return "\x1b" not in text and all(cell_len(line) <= 100 for line in text.splitlines())


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch):
    for name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def test_the_summary_says_what_was_found_and_where_it_is(capsys):
    text = summary_of(*analysed(), capsys)
    assert is_plain_and_narrow(text)
    words = " ".join(text.split())
    for part in (
        "verifier big, draft small, prompts study50",
        "Of the chain's 5 links",
        "At gamma 4 speculative decoding is faster",
        "median speedup 1.",
        "from step times 1.",
        "- Supported: The lower the verifier's entropy over an answer",
        "median load of 1.0, with 1 thread in use",
        "`make show claims` lists them",
        "next make show id=ambiguous-01",
        "outputs/a-long-name-of-a-run-directory-1a2b3c4d/report.html",
    ):
        assert part in words
    for category in ("ambiguous", "code", "creative", "factual", "math", "all"):
        assert f"\n {category} " in text


def test_a_prompt_that_failed_says_in_which_stage(capsys):
    tables = make_tables(SMALL)
    for row in (
        ["prefill", "lost-01", "memory", "out of\x1b[2J \u202e[bold]it"],
        ["decode", "code-01", "cache", "went away"],
    ):
        tables["errors"].loc[len(tables["errors"])] = row
    terminal.show_prompt(tables, "lost-01")
    terminal.show_prompt(tables, "code-01")
    text = capsys.readouterr().out
    assert "lost-01\nfailed in prefill: memory: out of [2J [bold]it" in text
    assert "code-01 (code)\nfailed in decode: cache: went away" in text


def test_a_failed_self_check_is_the_first_and_the_last_thing_said(capsys):
    result, tables = analysed()
    check = {"passed": False, "greedy": {"passed": False, "n_equal": 3, "n_tokens": 32}}
    terminal.summary(result, tables, {"self_checks": {"speculate": check}}, Path("outputs/run"))
    text = capsys.readouterr().out
    assert text.count("SELF-CHECK FAILED in speculate") == 2
    assert text.index("SELF-CHECK") < text.index("the chain") < text.rindex("/tables") < text.rindex("SELF-CHECK")
    assert "Self-checks: FAILED: greedy decoding" in text
    claims_terminal.show_checks({"self_checks": {"speculate": check}})
    assert "equal 3, tokens 32" in " ".join(capsys.readouterr().out.split())


def test_what_a_check_says_is_printed_as_it_is(capsys):
    claims_terminal.show_checks({"self_checks": {"speculate": {"passed": False, "error": "no file [/tmp/x] for [a]"}}})
    assert "no file [/tmp/x] for [a]" in capsys.readouterr().out


@pytest.mark.parametrize(("passed", "words"), [(True, "2 passed"), (False, "FAILED: this older run")])
def test_checks_without_a_verdict_of_their_own_have_that_of_their_stage(passed, words):
    checks = {"speculate": {"passed": passed, "greedy": {"n_equal": 3}, "distribution": {"p_value": 0.5}}}
    assert words in checks_sentence({"self_checks": checks})


@pytest.mark.parametrize(("columns", "width"), [("72", 72), ("", 100), ("0", 100), ("wide", 100)])
def test_the_width_of_plain_text_is_a_number_of_columns(columns, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert report_console().width == width


@pytest.mark.parametrize(
    ("speedup", "words"),
    [(1.2, "At gamma 4 speculative decoding is faster than"), (0.8, "slower than"), (1.0, "not 1.05 times")],
)
def test_speed_is_said_plainly_and_as_its_claim_says(capsys, speedup, words):
    drafted = analysed(Plan(n_answer_tokens=8, speedup=speedup), stages=("spec",))
    assert words in " ".join(summary_of(*drafted, capsys).split())


def test_a_speed_that_its_claim_does_not_decide_is_not_called_faster(capsys):
    result, tables = analysed(Plan(n_answer_tokens=8, speedup=1.2, load_average=4.0), stages=("spec",))
    assert {claim.claim_id: claim.verdict for claim in result.claims}["speedup_above_one"] == "undecided"
    words = " ".join(summary_of(result, tables, capsys).split())
    assert "At gamma 4 it is not decided whether" in words


def test_a_quiet_machine_needs_no_word_and_a_busy_one_is_named(capsys):
    assert "busy" not in summary_of(*analysed(), capsys)
    text = summary_of(*analysed(replace(SMALL, load_average=3.2)), capsys)
    assert is_plain_and_narrow(text)
    words = " ".join(text.split())
    assert "The machine was busy" in words
    assert "execution.remeasure=busy" in words


def test_timings_of_another_hour_are_told_apart(capsys):
    tables = make_tables(replace(SMALL, gammas=(2, 4)))
    runs = tables["spec_runs"]
    later = (runs["gamma"] == 2).to_numpy()
    runs.loc[later, "measured_at"] = runs.loc[later, "measured_at"].str.replace("T12", "T15")
    runs.loc[later, "verifier_step_s"] = 0.09
    words = " ".join(summary_of(analyze(tables, FAST), tables, capsys).split())
    assert "timed at 2 times" in words
    assert "2026-01-05 12:00 (load 1.0, 30.0 ms" in words
    assert "2026-01-05 15:00 (load 1.0, 90.0 ms" in words


def test_the_coverage_of_an_interval_is_told_as_it_is(capsys):
    drafted = {"spec_runs": make_tables(SMALL)["spec_runs"]}
    terminal.summary(analyze(drafted, replace(FAST, confidence=0.975)), {}, MANIFEST, Path("outputs/run"))
    assert "(97.5 % interval [" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("kept", [(), ("prefill",), ("decode",), ("spec",)])
def test_a_study_with_missing_stages_has_a_summary(capsys, kept):
    text = summary_of(*analysed(stages=kept), capsys)
    assert is_plain_and_narrow(text)
    assert "not run" in text
    assert "nan" not in text.split()


def test_failed_prompts_are_counted(capsys):
    result, tables = analysed()
    failed = [[stage, "code-01", "memory", "out of memory"] for stage in ("decode", "speculate")]
    tables = {**tables, "errors": pd.DataFrame(failed, columns=tables["errors"].columns)}
    words = " ".join(summary_of(result, tables, capsys).split())
    assert "(1 in decode, 1 in speculate): code-01" in words


def test_a_default_study_fits_one_screen_on_a_terminal_and_in_a_pipe_alike(capsys, monkeypatch):
    result, tables = analysed(replace(SMALL, load_average=3.2))
    text = summary_of(result, tables, capsys)
    assert is_plain_and_narrow(text)
    assert len(text.splitlines()) <= 45
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    coloured = summary_of(result, tables, capsys)
    assert [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines()] == [
        line.rstrip() for line in text.splitlines()
    ]


def test_many_categories_do_not_push_the_end_out_of_view(capsys):
    names = tuple(f"kind-{number:02d}" for number in range(30))
    plan = Plan(n_per_category=1, n_answer_tokens=8, categories=names)
    text = summary_of(*analysed(plan, stages=("prefill", "decode")), capsys)
    assert "and 22 more categories" in text
    assert len(text.splitlines()) <= 45


def test_claims_are_listed_by_family_and_those_of_other_runs_in_one_line(capsys):
    result, _ = analysed()
    claims_terminal.show_claims(result.claims)
    text = capsys.readouterr().out
    assert is_plain_and_narrow(text)
    words = " ".join(text.split())
    elsewhere = [claim for claim in result.claims if "experiment=" in claim.note]
    assert f"{len(elsewhere)} claims need another run:" in words
    for claim in result.claims:
        assert (claim.statement in words_of_the_last_column(text)) == (claim not in elsewhere)
    for run in ("sampling_sweep", "poisoned", "sinks_lowered", "temperatures", "kv_retention"):
        assert words.count(f"experiment={run}") == 1


def words_of_the_last_column(text: str) -> str:
    lines = text.splitlines()
    start = next(line.index("claim") for line in lines if " claim" in line and "verdict" in line)
    return " ".join(" ".join(line[start:] for line in lines).split())


def test_colour_where_there_is_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in summary_of(*analysed(), capsys)


def test_one_prompt_is_shown_whole(capsys):
    tables = make_tables(SMALL)
    terminal.show_prompt(tables, "code-02")
    text = capsys.readouterr().out
    assert is_plain_and_narrow(text)
    assert "code-02 (code)" in text
    assert "Structural sinks" in text
    assert "Anomalous sinks: none" in text
    run = tables["spec_runs"].query("repetition == 0").set_index("prompt_id").loc["code-02"]
    counts = f"{run['n_proposed']} proposed, {run['n_tested']} tested, {run['n_accepted']} accepted"
    assert f"{run['n_rounds']}: {counts}" in text
    assert f"alpha {run['alpha']:.2f}, accepted / proposed {run['acceptance_rate']:.2f}" in text


def test_what_the_template_did_is_told(capsys):
    for prompt_id, is_told in (("ambiguous-01", False), ("ambiguous-02", True)):
        terminal.show_prompt(make_tables(SMALL), prompt_id)
        assert ("the template adds a system text" in capsys.readouterr().out) == is_told


def test_an_anomalous_sink_is_listed(capsys):
    tables = make_tables(SMALL)
    tokens = tables["prefill_tokens"]
    row = tokens.index[(tokens["prompt_id"] == "code-01") & ~tokens["is_structural"].to_numpy(dtype=bool)][3]
    tokens.loc[row, ["z_score", "is_sink", "token"]] = [9.5, True, "[bold]oddity"]
    terminal.show_prompt(tables, "code-01")
    text = capsys.readouterr().out
    table = text[text.index("Anomalous sinks") :]
    assert "[bold]oddity" in table
    assert "9.5" in table


@pytest.mark.parametrize("kept", [("prefill",), ("decode",), ("spec",)])
def test_a_prompt_is_shown_as_far_as_it_was_measured(capsys, kept):
    terminal.show_prompt({n: f for n, f in make_tables(SMALL).items() if n.startswith(kept)}, "code-01")
    assert "code-01 (code)" in capsys.readouterr().out


def test_an_unknown_prompt_is_one_line_with_near_ids():
    with pytest.raises(UserError, match=r"code-7.* 15 .*code-0") as error:
        terminal.show_prompt(make_tables(SMALL), "code-7")
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="no prompts"):
        terminal.show_prompt({}, "code-7")


def test_the_models_are_named_as_loaded_and_else_as_asked_for() -> None:
    assert models_sentence(MANIFEST) == "verifier big, draft small, prompts study50"
    loaded = models_sentence({**MANIFEST, "models": LOADED})
    assert loaded == "verifier Big (Q4_1, dequantised), draft Small, prompts study50"
