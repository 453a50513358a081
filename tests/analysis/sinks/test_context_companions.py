"""Context measures: their distributions, and how they go together."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sink_tables import by, prompt_measures, prompt_tables
from synthetic import Plan, make_tables

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.join import prompt_frame
from specstudy.analysis.measures import CONTEXT_MEASURES
from specstudy.analysis.sinks.companions import context_correlations, distributions
from specstudy.analysis.sinks.heads import head_map, sink_rate_agreement
from specstudy.analysis.sinks.positions import position_frame
from specstudy.analysis.sinks.study import analyze_sinks
from specstudy.records import SINK_TABLES
from specstudy.tables.schema import check_unique, to_table

FAST = AnalysisSettings(bootstrap_samples=200)


class TestDistributions:
    def test_by_hand(self) -> None:
        row = by(distributions(prompt_measures(5, sink_rate=np.array([1.0, 1.0, 2.0, 4.0, 8.0]))), measure="sink_rate")
        assert (row.minimum, row.lower_quartile, row.median, row.upper_quartile, row.maximum) == (1, 1, 2, 4, 8)
        assert (row.n_distinct, row.share_at_commonest) == (4, 0.4)
        assert by(distributions(prompt_measures()), measure="sink_rate").degenerate is None

    def test_a_constant_one_is_said_to_be(self) -> None:
        rows = distributions(prompt_measures(context_health=np.full(40, 10.0)))
        assert by(rows, measure="context_health").degenerate == "is constant (10)"

    def test_one_that_is_null_throughout_is_said_to_be(self) -> None:
        row = by(distributions(prompt_measures(context_health=np.full(40, np.nan))), measure="context_health")
        assert (row.n_prompts, row.median) == (0, None)
        assert row.degenerate is not None


class TestCorrelations:
    def test_every_pair_once_and_length_held_where_it_is_not_one_of_them(self) -> None:
        rows = context_correlations(prompt_measures(), FAST)
        pairs = len(CONTEXT_MEASURES) * (len(CONTEXT_MEASURES) - 1) // 2
        assert len(rows) == pairs + pairs - (len(CONTEXT_MEASURES) - 1)
        assert len({(r.x, r.y, r.held_constant) for r in rows}) == len(rows)

    def test_what_goes_together_by_length_alone_is_seen_through(self) -> None:
        rng = np.random.default_rng(1)
        size = np.log(np.arange(20.0, 60.0))
        both = {name: -5 * size + rng.normal(0, 0.2, 40) for name in ("context_health_soft", "structural_share")}
        rows = context_correlations(prompt_measures(**both), FAST)
        pair = {"x": "context_health_soft", "y": "structural_share"}
        assert by(rows, **pair, held_constant="nothing").ci_low > 0.9
        held = by(rows, **pair, held_constant="n_tokens")
        assert held.ci_low < 0 < held.ci_high

    def test_a_degenerate_measure_has_reasons_and_no_number(self) -> None:
        rows = context_correlations(prompt_measures(context_health=np.full(40, 10.0)), FAST)
        mine = [r for r in rows if "context_health" in (r.x, r.y)]
        assert mine
        assert all(r.estimate is None and "is constant (10)" in r.null_reason for r in mine)


class TestHeads:
    def test_the_map_is_the_mean_over_prompt_measures(self) -> None:
        cells = [(p, layer, head) for p in ("a", "b") for layer in (0, 1) for head in (0, 1, 2)]
        frame = pd.DataFrame(cells, columns=["prompt_id", "layer", "head"])
        frame["first_token_attention"] = frame["layer"] + frame["head"] / 10 + (frame["prompt_id"] == "b")
        drawn = head_map({"prefill_heads": frame})
        assert drawn.shape == (2, 3)
        assert drawn.loc[1, 2] == pytest.approx(1.2 + 0.5)
        assert head_map({}).empty

    def test_agreement_of_sink_rate_and_first_z_is_found(self) -> None:
        z = np.linspace(5, 12, 30)
        tables = prompt_tables([[0.0] * 9] * 30)
        first = tables["prefill_tokens"]["position"] == 0
        tables["prefill_tokens"].loc[first, "z_score"] = z
        rate = z / 20
        rows = sink_rate_agreement(position_frame(tables), prompt_measures(30, sink_rate=rate), FAST)
        assert by(rows, measure="z_score", quantity="sink_rate_with_first_z").estimate == pytest.approx(1.0)
        flat = by(rows, measure="z_generated", quantity="sink_rate_with_first_z")
        assert flat.estimate is None
        assert "is constant (0)" in flat.null_reason


@pytest.mark.parametrize("kept", [None, (), ("prefill",), ("decode",), ("spec",)])
def test_the_whole_analysis_fits_its_tables_whatever_is_missing(kept: tuple[str, ...] | None) -> None:
    tables = make_tables(Plan(n_per_category=3, n_answer_tokens=6))
    tables = {name: frame for name, frame in tables.items() if kept is None or name.startswith(kept or "!")}
    result = analyze_sinks(tables, prompt_frame(tables), FAST)
    for name in SINK_TABLES:
        rows = getattr(result, name)
        check_unique(name, to_table(name, rows))
        for row in rows:
            if hasattr(row, "ci_low") and None in (row.estimate, row.ci_low):
                assert row.null_reason, row


def test_the_same_tables_in_any_order_give_the_same_answers() -> None:
    tables = make_tables(Plan(n_per_category=3, n_answer_tokens=6))
    shuffled = {name: frame.sample(frac=1, random_state=1) for name, frame in tables.items()}
    one, other = (analyze_sinks(t, prompt_frame(t), FAST) for t in (tables, shuffled))
    for name in SINK_TABLES:
        assert to_table(name, getattr(one, name)).equals(to_table(name, getattr(other, name))), name
