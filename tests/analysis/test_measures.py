"""What is declared of measures is true of the tables."""

from __future__ import annotations

from dataclasses import fields

import pytest

from specstudy.analysis.measures import MEASURES, Measure, measures_in, short
from specstudy.records import TABLES


@pytest.mark.parametrize("measure", [m for m in MEASURES.values() if m.table], ids=lambda measure: measure.name)
def test_a_measure_with_a_table_is_a_column_of_it(measure: Measure) -> None:
    assert (measure.column or measure.name) in {f.name for f in fields(TABLES[measure.table])}


def test_lists_keep_the_order_of_declaration() -> None:
    assert measures_in("summary") == (
        "mean_entropy_bits",
        "mean_expected_accept",
        *("acceptance_rate", "alpha", "alpha_expected", "speedup", "speedup_steps"),
    )
    assert measures_in("versions", "decode_tokens") == ("mean_sampling_entropy_bits",)


def test_narrow_columns_have_short_names() -> None:
    assert [short(name) for name in ("alpha_expected", "context_health_soft")] == [
        "expected alpha",
        "soft context health",
    ]
