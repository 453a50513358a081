"""The part that a position plays, sinks by part, and the run of template tokens at the boundary."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sink_tables import CLOSING, by, prompt_tables

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.sinks.positions import Z_MEASURES, position_frame
from specstudy.analysis.sinks.roles import sinks_by_role

FAST = AnalysisSettings(bootstrap_samples=200)
PLAIN = [list(np.linspace(-1, 1, 12))] * 6


def rows_of(tables: dict[str, pd.DataFrame]) -> list:
    return sinks_by_role(position_frame(tables), FAST)


class TestPositions:
    def test_places_by_hand(self) -> None:
        frame = position_frame(prompt_tables([[0.0] * 4]))
        assert frame["place"].tolist() == ["first", "inner", "inner", *["content"] * 4, *["boundary"] * 5]
        assert frame["structural_role"].tolist()[-5:] == [role for _, role in CLOSING]

    def test_template_tokens_between_two_messages_are_not_the_boundary(self) -> None:
        tables = prompt_tables([[0.0] * 4])
        tables["prefill_tokens"].loc[5, ["is_structural", "structural_role"]] = [True, "end_marker"]
        assert position_frame(tables)["place"].tolist()[3:7] == ["content", "content", "inner", "content"]

    def test_a_raw_prompt_has_no_boundary(self) -> None:
        tables = prompt_tables([[0.0] * 10])
        tables["prefill_tokens"]["is_structural"] = tables["prefill_tokens"]["position"] == 0
        places = position_frame(tables)["place"]
        assert places.tolist() == ["first", *["content"] * 17]

    def test_a_prompt_without_content_has_no_boundary(self) -> None:
        tables = prompt_tables([[]])
        assert set(position_frame(tables)["place"]) == {"first", "inner"}

    def test_rows_may_come_in_any_order(self) -> None:
        tables = prompt_tables(PLAIN)
        shuffled = {name: frame.sample(frac=1, random_state=0) for name, frame in tables.items()}
        pd.testing.assert_frame_equal(position_frame(tables), position_frame(shuffled))

    def test_what_the_answer_attends_to_is_averaged_over_repetitions(self) -> None:
        tables = prompt_tables([[0.0, 1.0]])
        again = tables["decode_attention"].assign(repetition=1, z_generated=lambda f: f["z_generated"] + 2)
        tables["decode_attention"] = pd.concat([tables["decode_attention"], again])
        assert position_frame(tables)["z_generated"].tolist()[3:5] == [1.0, 2.0]

    def test_without_decoding_it_is_not_known(self) -> None:
        frame = position_frame({"prefill_tokens": prompt_tables(PLAIN)["prefill_tokens"]})
        assert frame["z_generated"].isna().all()
        assert len(frame) == 6 * 20


class TestSinksByRole:
    def test_incidence_and_mean_by_hand(self) -> None:
        rows = rows_of(prompt_tables([[7.0, 0.0, 1.0, 0.0], [0.0, 0.0, 8.0, 9.0], [1.0] * 4]))
        content = by(rows, measure="z_score", place="content")
        assert content.n_prompts == 3
        assert content.n_positions == 12
        assert content.incidence == pytest.approx(3 / 12)
        assert content.mean_z == pytest.approx((8 + 17 + 4) / 12)
        assert content.incidence_ci_low < 3 / 12 < content.incidence_ci_high

    def test_a_planted_sink_is_found_at_its_role_alone(self) -> None:
        planted = [9.0, 0, 0, 0, 0, 0, 0, 7.0]
        rows = rows_of(prompt_tables(PLAIN, structural_z=planted))
        assert by(rows, measure="z_score", place="first").incidence == 1.0
        assert by(rows, measure="z_score", structural_role="generation_prompt+2").incidence == 1.0
        others = [r for r in rows if r.measure == "z_score" and r.structural_role in ("end_marker", "role_name")]
        assert [r.incidence for r in others] == [0.0, 0.0]

    def test_roles_come_in_reading_order(self) -> None:
        order = [(r.place, r.structural_role) for r in rows_of(prompt_tables(PLAIN)) if r.measure == "z_score"]
        closing = [("boundary", role) for _, role in CLOSING]
        opening = [("first", "role_marker"), ("inner", "role_name"), ("inner", "role_newline")]
        assert order == [*opening, *closing, ("boundary", "all"), ("content", "content")]

    def test_the_window_cannot_see_the_boundary(self) -> None:
        row = by(rows_of(prompt_tables(PLAIN)), measure="z_window", place="boundary", structural_role="all")
        assert (row.n_positions, row.incidence, row.mean_z, row.is_mild_sink) == (0, None, None, None)
        assert "inside the observation window" in row.null_reason

    def test_the_reason_of_the_table_is_handed_on(self) -> None:
        tables = prompt_tables([[0.0] * 4] * 3)
        tables["prefill_tokens"] = tables["prefill_tokens"].assign(z_score=np.nan, null_reason="4 content positions")
        row = by(rows_of(tables), measure="z_score", place="content")
        assert row.incidence is None
        assert row.null_reason == "4 content positions"

    def test_none_of_a_few_has_no_interval(self) -> None:
        row = by(rows_of(prompt_tables([[0.5] * 4] * 4)), measure="z_score", place="content")
        assert (row.incidence, row.incidence_ci_low) == (0.0, None)
        assert "interval of incidence" in row.null_reason

    @pytest.mark.parametrize(("z", "verdict", "n_mild"), [(3.0, True, 8), (0.5, False, 0)])
    def test_the_boundary_is_told_by_its_whole_interval(self, z: float, verdict: bool, n_mild: int) -> None:
        rng = np.random.default_rng(0)
        tables = prompt_tables([list(np.linspace(-1, 1, 12))] * 8)
        boundary = tables["prefill_tokens"]["position"] >= 15
        tables["prefill_tokens"].loc[boundary, "z_score"] = z + rng.normal(0, 0.1, boundary.sum())
        row = by(rows_of(tables), measure="z_score", place="boundary", structural_role="all")
        assert row.is_mild_sink is verdict
        assert row.n_prompts_mild == n_mild

    def test_half_over_half_under_is_not_decided(self) -> None:
        tables = prompt_tables([list(np.linspace(-1, 1, 12))] * 8)
        frame = tables["prefill_tokens"]
        frame.loc[frame["position"] >= 15, "z_score"] = np.where(frame["prompt_id"] < "p04", 3.0, 1.0)[
            frame["position"] >= 15
        ]
        row = by(rows_of(tables), measure="z_score", place="boundary", structural_role="all")
        assert row.is_mild_sink is None
        assert row.n_prompts_mild == 4

    @pytest.mark.parametrize("kept", [(), ("prefill_tokens",), ("decode_attention",)])
    def test_tables_may_be_missing(self, kept: tuple[str, ...]) -> None:
        rows = rows_of({name: frame for name, frame in prompt_tables(PLAIN).items() if name in kept})
        assert bool(rows) == ("prefill_tokens" in kept)
        assert {r.measure for r in rows} <= set(Z_MEASURES)
        assert all(r.null_reason for r in rows if r.measure == "z_generated")
