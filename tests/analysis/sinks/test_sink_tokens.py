"""Which content tokens are sinks, and whether they are sinks elsewhere."""

from __future__ import annotations

import pytest
from sink_tables import by, prompt_tables

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.sinks.positions import position_frame
from specstudy.analysis.sinks.tokens import sink_recurrence, sink_tokens

FAST = AnalysisSettings(bootstrap_samples=200)
THREE = {"measure": "z_score", "threshold": 3.0}

# " the" is a sink where it first stands, "." nowhere twice, in three prompts; the fourth holds neither.
WORDS = [
    ["the", "a", "the", "b", "."],
    ["c", "the", "the", ".", "the"],
    ["the", "d", ".", ".", "e"],
    ["f", "g", "h", "i", "j"],
]
Z = [
    [4.0, 0.0, 0.0, 0.0, 7.0],
    [0.0, 5.0, 4.0, 0.0, 0.0],
    [6.5, 0.0, 0.0, 0.0, 0.0],
    [0.0, 0.0, 0.0, 0.0, 0.0],
]


def tables() -> dict:
    return prompt_tables(Z, WORDS, window=0)


class TestSinkTokens:
    def test_by_hand(self) -> None:
        row = by(sink_tokens(position_frame(tables()), FAST), **THREE, token="the")
        assert (row.n_occurrences, row.n_prompts, row.n_sinks, row.n_prompts_as_sink) == (6, 3, 4, 3)
        assert row.estimate == pytest.approx(4 / 6)
        assert row.share_first_occurrence == 1.0
        assert row.share_later_occurrences == pytest.approx(1 / 3)
        assert row.mean_position == pytest.approx((3 + 4 + 5 + 3) / 4)
        assert row.mean_z == pytest.approx((4 + 5 + 4 + 6.5) / 4)

    def test_the_commonest_comes_first_and_tokens_that_are_no_sink_do_not_come(self) -> None:
        rows = [r for r in sink_tokens(position_frame(tables()), FAST) if (r.measure, r.threshold) == ("z_score", 3.0)]
        assert [r.token for r in rows] == ["the", "."]

    def test_both_thresholds_are_asked_and_once_if_they_are_the_same(self) -> None:
        rows = sink_tokens(position_frame(tables()), FAST)
        assert {r.threshold for r in rows} == {3.0, 6.0}
        same = sink_tokens(position_frame(tables()), AnalysisSettings(bootstrap_samples=200, sink_threshold=3.0))
        assert len(same) == len(rows) - sum(r.threshold == 6.0 for r in rows)

    def test_no_later_occurrence_is_null(self) -> None:
        plain = prompt_tables([[4.0, 0.0]] * 3, [["x", "y"]] * 3)
        row = by(sink_tokens(position_frame(plain), FAST), measure="z_score", threshold=3.0, token="x")
        assert row.share_later_occurrences is None
        assert (row.estimate, row.ci_low) == (1.0, None)

    def test_no_content_sink_gives_no_row(self) -> None:
        assert sink_tokens(position_frame(prompt_tables([[0.0] * 9])), FAST) == []


class TestRecurrence:
    def test_by_hand(self) -> None:
        rows = sink_recurrence(position_frame(tables()), FAST)
        # Other occurrences of a sink's token in its prompt: "the" 1 of p0 (0 sinks); two sinks of p1, each with 2
        # others (1 sink each). "." of p0 has none, "the" of p2 has none.
        same = by(rows, **THREE, quantity="sinks_at_other_occurrences")
        assert (same.n, same.estimate) == (5, pytest.approx(2 / 5))
        # "the" is held by 3 prompts and a sink in all: 2 of 2 from each. "." a sink in p0 only: 0 of 2.
        other = by(rows, **THREE, quantity="sinks_in_other_prompts")
        assert (other.n, other.estimate) == (8, pytest.approx(6 / 8))
        positions = by(rows, **THREE, quantity="sink_positions")
        assert (positions.n, positions.estimate) == (20, pytest.approx(5 / 20))
        # Pairs of prompt and token: p0 the a b . ; p1 c the . ; p2 the d . e ; p3 five.
        pairs = by(rows, **THREE, quantity="sink_tokens")
        assert (pairs.n, pairs.estimate) == (16, pytest.approx(4 / 16))

    def test_sinks_that_stand_alone_cannot_recur(self) -> None:
        alone = prompt_tables([[4.0, 0.0]] * 3, [[f"x{i}", f"y{i}"] for i in range(3)])
        rows = sink_recurrence(position_frame(alone), FAST)
        for quantity in ("sinks_at_other_occurrences", "sinks_in_other_prompts"):
            row = by(rows, **THREE, quantity=quantity)
            assert (row.n, row.estimate) == (0, None)
            assert "occurs elsewhere" in row.null_reason

    def test_no_sink_at_all_is_a_share_of_none_without_an_interval(self) -> None:
        rows = sink_recurrence(position_frame(prompt_tables([[0.0] * 9] * 3)), FAST)
        row = by(rows, **THREE, quantity="sink_positions")
        assert (row.n, row.estimate, row.ci_low) == (27, 0.0, None)
        assert row.null_reason == "the same in every sample of prompts"

    def test_no_table_no_number(self) -> None:
        rows = sink_recurrence(position_frame({}), FAST)
        assert rows
        assert all(r.estimate is None and r.null_reason for r in rows)
