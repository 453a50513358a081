from __future__ import annotations

from pathlib import Path

import pytest
from analysed import SMALL
from synthetic import make_tables

from specstudy.report.stage_terminal import stage_summary


@pytest.mark.parametrize(
    ("stage", "prefix", "words"),
    [
        ("prefill", "prefill", ["15 prompts of", "Sinks: position 0 in 15 of 15 prompts", "soft context health"]),
        ("decode", "decode", ["30 answers to 15 prompts, of 24 tokens", "expected acceptance on the same text"]),
        (
            "speculate",
            "spec",
            ["30 speculative answers", "gamma 4: Mean expected alpha", "Median measured"],
        ),
    ],
)
def test_a_single_stage_says_what_it_found_where_it_is_and_what_comes_next(
    stage: str, prefix: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    tables = {name: frame for name, frame in make_tables(SMALL).items() if name.startswith(prefix)}
    stage_summary(stage, "make next-stage", tables, Path("outputs/here"))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 10
    assert lines[-2:] == ["tables outputs/here/tables", "next   make next-stage"]
    for part in words:
        assert part in " ".join(lines)
