from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from rich.cells import cell_len
from synthetic import Plan, make_tables

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.compare import Side, compare
from specstudy.report.compare import print_comparison

FAST = AnalysisSettings(bootstrap_samples=100)
PLAN = Plan(n_per_category=3, n_answer_tokens=12, gammas=(2, 4))
HASH = "0123456789abcdef" * 4


def claims(verdict: str) -> pd.DataFrame:
    columns = {"estimate": -0.21, "ci_low": -0.4, "ci_high": -0.05}
    return pd.DataFrame(
        [{"claim_id": "chain", "statement": "Attention [b]decides[/b].", "verdict": verdict, **columns}]
    )


def made(name: str, gammas: tuple[int, ...], device: str, verdict: str | None, end: str | None = "then") -> Side:
    tables = make_tables(replace(PLAN, gammas=gammas, seed=len(gammas)))
    if verdict:
        tables["claims"] = claims(verdict)
    manifest = {
        "time": {"start": "2026-01-02T10:33:44+01:00", "end": end},
        "execution": {"device": device},
        "models": {"verifier": {"sha256": HASH if device == "cpu" else HASH[::-1]}},
    }
    config = {"spec": {"gamma": list(gammas)}, "prompts": {"path": "[red]a very long path[/red]/" * 8 * len(gammas)}}
    return Side(name, config, manifest, tables)


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch):
    for name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def printed(a: Side, b: Side, capsys) -> str:
    print_comparison(compare(a, b, FAST), a, b)
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert all(cell_len(line) <= 100 for line in text.splitlines())
    return text


def test_two_runs_side_by_side(capsys):
    a = made("run-a", (2, 4), "cpu", "supported")
    b = made("run-" + "b" * 100, (4,), "mps", "undecided", end=None)
    text = printed(a, b, capsys)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    comparison = compare(a, b, FAST)
    assert "a run-a 2026-01-02 10:33" in lines
    assert "2026-01-02 10:33, not finished" in " ".join(lines)
    assert "spec.gamma [2,4] 4" in lines
    assert "execution.device cpu mps" in lines
    assert "models.verifier.sha256 0123456789ab fedcba987654" in lines
    assert "Prompts in both runs: 15." in lines
    assert "Only in a, not compared: gamma 2." in lines
    assert lines.count("gamma 4") == 1
    row = comparison.measures.set_index("measure").loc["speedup"]
    shown = [f"{row[column]:.3f}".replace("-", "−") for column in ("a", "b", "value", "low", "high")]
    assert "speedup {} {} {} [{}, {}] 15".format(*shown) in lines
    row = comparison.measures.set_index("measure").loc["tokens_per_s"]
    assert any(line.startswith(f"tokens per second {row['a']:.1f} {row['b']:.1f} ") for line in lines)
    assert "Attention [b]decides[/b]. supported not decided" in lines
    assert "−0.21 [−0.40, −0.05] −0.21 [−0.40, −0.05]" in lines
    assert "[red]a" in text
    assert any(line.startswith("answer 0 of 15 prompts ambiguous-01") for line in lines)


def test_a_run_against_itself(capsys):
    a = made("run-a", (4,), "cpu", "supported")
    text = printed(a, a, capsys)
    assert "Both have the same configuration." in text
    assert "Both have the same models" in text
    assert "No claim changed its verdict." in text
    assert text.count("the same in all") == 11
    assert text.count("15 of 15 prompts") == 4
    assert "Only in" not in text


def test_speeds_of_a_busy_machine_are_shown_and_not_compared(capsys):
    a, b = made("run-a", (4,), "cpu", "supported"), made("run-b", (4,), "cpu", "supported")
    b.tables["spec_runs"]["load_average"] = 3.2
    text = printed(a, b, capsys)
    words = " ".join(text.split())
    assert "Speeds are not compared: the machine of b was busy at gamma 4" in words
    assert text.count("not compared") == 1 + 3
    assert text.count("the same in all") == 11 - 3


def test_what_is_missing_is_said(capsys):
    a, b = made("run-a", (4,), "cpu", "supported"), made("run-b", (6,), "cpu", None)
    tables = {name: frame for name, frame in b.tables.items() if not name.startswith("prefill")}
    tables["spec_runs"] = tables["spec_runs"][tables["spec_runs"]["prompt_id"] != "code-01"]
    tables["decode_runs"] = tables["decode_runs"][tables["decode_runs"]["prompt_id"] != "code-01"]
    text = printed(a, replace(b, tables=tables), capsys)
    assert "not answered in b; `make analyze`" in text
    assert "14; 1 only in a (the first code-01)" in text
    assert "gamma 4 (a), gamma 6 (b)" in text
    assert "nan" not in text
    (health,) = (line.split() for line in text.splitlines() if "soft context health" in line)
    assert health[3:] == ["–", "–", "–", "0"]


def test_a_claim_that_one_run_does_not_know(capsys):
    a, b = made("run-a", (4,), "cpu", "supported"), made("run-b", (4,), "cpu", "supported")
    b.tables["claims"]["claim_id"] = "renamed"
    assert printed(a, b, capsys).count("not declared") == 2


def test_colour_where_there_is_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    a = made("run-a", (4,), "cpu", "supported")
    print_comparison(compare(a, a, FAST), a, a)
    assert "\x1b[" in capsys.readouterr().out
