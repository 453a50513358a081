"""The series' speeds read again: the table of docs/findings.md is the one that is computed, and says what is said."""

from __future__ import annotations

import pytest
from source_tables import ROWS, Row, table

from specstudy.config import PROJECT_ROOT


def test_the_findings_show_the_table() -> None:
    assert f"\n\n{table()}\n\n" in (PROJECT_ROOT / "docs/findings.md").read_text(encoding="utf-8")


def test_a_row_by_hand() -> None:
    """Alpha 1/2 at gamma 2: .375 accepted, 1.75 tokens a round, which costs 1.5 steps by c, and 3.5 by the clock."""
    row = Row("any", 2, 0.375, 0.25, None, 0.5)
    assert row.alpha == pytest.approx(0.5)
    assert row.ceiling == pytest.approx(1.75 / 1.5)
    assert row.cost_by_the_clock == pytest.approx((3.5 - 1) / 2)
    assert row.misread_theory == pytest.approx((1 + 0.375 + 0.375**2) / 1.5)


@pytest.mark.parametrize("row", [row for row in ROWS if row.theory is not None])
def test_the_series_theory_is_the_formula_fed_accepted_per_proposed(row: Row) -> None:
    assert row.misread_theory == pytest.approx(row.theory, abs=0.005)


@pytest.mark.parametrize("row", ROWS)
def test_every_measured_speed_lies_under_its_ceiling(row: Row) -> None:
    assert row.speedup < row.ceiling
    assert (row.speedup > 1) == (row.acceptance_rate > row.cost_by_the_clock)
