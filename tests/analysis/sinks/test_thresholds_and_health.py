"""What each threshold flags, which one is recommended, and what becomes of context health."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sink_tables import by, prompt_tables

from specstudy import formulas
from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.sinks.health import health_by_prompt, health_sweep, raised_by_next
from specstudy.analysis.sinks.positions import position_frame
from specstudy.analysis.sinks.thresholds import recommended_thresholds, threshold_sweep

FAST = AnalysisSettings(bootstrap_samples=200, thresholds=(2.0, 3.0, 4.0, 5.0, 6.0))
Z = [[2.5, 0.0, 0.0, 0.0], [5.5, 3.5, 0.0, 0.0], [0.0] * 4, [0.5] * 4]


def planted(n_prompts: int, at: float, share: float) -> dict:
    """Prompts of 100 content positions of which a share has the z-score `at`, give or take one a prompt."""
    rng = np.random.default_rng(0)
    sizes = rng.choice([share * 100 - 1, share * 100 + 1], n_prompts) if share else np.zeros(n_prompts)
    return prompt_tables([[at] * int(n) + [0.0] * (100 - int(n)) for n in sizes])


class TestSweep:
    def test_shares_by_hand(self) -> None:
        rows = threshold_sweep(position_frame(prompt_tables(Z, structural_z=[4.5, 0, 0, 0, 0, 0, 0, 3.0])), FAST)
        shares = {r.threshold: (r.share_structural, r.share_content) for r in rows if r.measure == "z_score"}
        assert shares[2.0] == (pytest.approx(8 / 32), pytest.approx(3 / 16))
        assert shares[3.0] == (pytest.approx(4 / 32), pytest.approx(2 / 16))  # at the threshold is not over it
        assert shares[5.0] == (0.0, pytest.approx(1 / 16))
        assert shares[6.0] == (0.0, 0.0)

    def test_the_window_counts_only_what_it_saw(self) -> None:
        row = by(threshold_sweep(position_frame(prompt_tables(Z)), FAST), measure="z_window", threshold=2.0)
        assert (row.n_structural, row.n_content) == (12, 12)

    def test_no_table_has_its_reason(self) -> None:
        rows = threshold_sweep(position_frame({}), FAST)
        assert len(rows) == 10
        assert all(r.share_content is None and r.null_reason for r in rows)


class TestRecommendation:
    def test_a_planted_share_over_one_percent_pushes_it_past_them(self) -> None:
        rows = recommended_thresholds(position_frame(planted(30, 4.5, 0.05)), FAST)
        row = by(rows, measure="z_score")
        assert (row.estimate, row.ci_low, row.ci_high) == (5.0, 5.0, 5.0)

    def test_nothing_flagged_recommends_the_smallest(self) -> None:
        assert (
            by(recommended_thresholds(position_frame(planted(30, 1.5, 0.5)), FAST), measure="z_score").estimate == 2.0
        )

    def test_exactly_one_percent_is_allowed(self) -> None:
        assert (
            by(
                recommended_thresholds(position_frame(prompt_tables([[4.5] + [0.0] * 99] * 3)), FAST), measure="z_score"
            ).estimate
            == 2.0
        )

    def test_about_one_percent_is_uncertain(self) -> None:
        row = by(recommended_thresholds(position_frame(planted(30, 4.5, 0.01)), FAST), measure="z_score")
        assert row.ci_low == 2.0
        assert row.ci_high == 5.0

    def test_none_where_even_the_largest_flags_more(self) -> None:
        row = by(recommended_thresholds(position_frame(planted(30, 9.0, 0.05)), FAST), measure="z_score")
        assert row.estimate is None
        assert "even at 6" in row.null_reason

    def test_no_upper_end_where_samples_go_beyond_the_largest(self) -> None:
        row = by(
            recommended_thresholds(
                position_frame(prompt_tables([[9.0] + [0.0] * 99] * 2 + [[0.0] * 100] * 2 + [[9.0] * 2 + [0.0] * 98])),
                FAST,
            ),
            measure="z_score",
        )
        assert row.estimate == 2.0
        assert row.ci_high is None
        assert "some samples" in row.null_reason


class TestHealthByPrompt:
    @given(arrays(np.float64, st.integers(1, 20), elements=st.floats(-5, 12)), st.sampled_from([2.0, 3.5, 5.0, 6.0]))
    def test_is_the_formula_and_the_next_is_the_formula_at_the_next_position(
        self, z: np.ndarray, threshold: float
    ) -> None:
        content = position_frame(prompt_tables([list(z)]))
        row = health_by_prompt(content[content["place"] == "content"], "z_score", threshold).iloc[0]
        assert row["health"] == pytest.approx(formulas.context_health(z, threshold))
        weaker = z[z <= threshold]
        if len(weaker):
            lowered = np.where(z >= weaker.max(), z, -99.0)
            lowered = np.where(
                np.cumsum(lowered == weaker.max()) > 1, np.where(lowered == weaker.max(), -99.0, lowered), lowered
            )
            expected = formulas.context_health(lowered, -98.0)
            assert row["health_with_next"] == pytest.approx(expected)
        else:
            assert np.isnan(row["health_with_next"])

    def test_raised_by_hand(self) -> None:
        # 100 positions; sinks at 2: one of 4.9. The next, 2.0, costs 0.1 of density and gives 1.45 of severity back.
        content = position_frame(prompt_tables([[4.9, 2.0] + [0.0] * 98, [2.1] + [2.0] + [0.0] * 6, [0.0] * 8]))
        health = health_by_prompt(content[content["place"] == "content"], "z_score", 2.0)
        assert health["health"].tolist() == pytest.approx([10 - 0.1 - 4.9, 10 - 1.25 - 2.1, 10.0])
        assert health["health_with_next"].tolist()[:2] == pytest.approx([10 - 0.2 - 3.45, 10 - 2.5 - 2.05])
        raised = raised_by_next(health, 2.0, FAST)
        assert (raised.n, raised.value) == (2, 0.5)

    def test_at_five_and_more_it_cannot_rise(self) -> None:
        content = position_frame(prompt_tables([[9.0, 1.0] + [0.0] * 98] * 3))
        raised = raised_by_next(health_by_prompt(content, "z_score", 5.0), 5.0, FAST)
        assert raised.value is None
        assert "cap" in raised.null_reason


class TestHealthSweep:
    def test_the_jump_and_the_spread(self) -> None:
        rows = health_sweep(position_frame(prompt_tables(Z)), FAST)
        five = by(rows, measure="z_score", threshold=5.0)
        assert (five.n_prompts, five.n_with_a_sink, five.n_distinct, five.share_at_ten) == (4, 1, 2, 0.75)
        assert five.minimum == five.largest_with_a_sink == pytest.approx(10 - 2.5 - 5)
        two = by(rows, measure="z_score", threshold=2.0)
        assert two.n_with_a_sink == 2
        assert two.largest_with_a_sink == pytest.approx(10 - 2.5 - 2.5)
        six = by(rows, measure="z_score", threshold=6.0)
        assert (six.share_at_ten, six.largest_with_a_sink) == (1.0, None)
        assert "no prompt has a content sink" in six.null_reason

    def test_scores_at_the_threshold_of_prefill_are_those_of_prefill(self) -> None:
        content = position_frame(prompt_tables(Z))
        content = content[content["place"] == "content"]
        found = health_by_prompt(content, "z_score", 3.0)["health"].tolist()
        assert found == [formulas.context_health(np.array(z), 3.0) for z in Z]

    def test_no_table_has_its_reason(self) -> None:
        rows = health_sweep(position_frame({}), FAST)
        assert len(rows) == 10
        assert all(r.minimum is None and r.n_prompts == 0 and r.null_reason for r in rows)
