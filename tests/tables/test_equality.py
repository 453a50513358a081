from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from table_examples import example

from specstudy.errors import UserError
from specstudy.records import TABLES, TIMING_COLUMNS
from specstudy.tables.equality import MEASURED_TABLES, Difference, first_difference, first_difference_of_tables
from specstudy.tables.run_directory import publish_table
from specstudy.tables.schema import to_table


def differ(ours: list[object], theirs: list[object], table: str = "decode_runs") -> Difference | None:
    return first_difference_of_tables(table, to_table(table, ours), to_table(table, theirs))


def runs(*prompt_ids: str, **values: object) -> list[object]:
    return [example("decode_runs", prompt_id=name, **values) for name in prompt_ids]


def test_equal_rows_in_any_order_do_not_differ() -> None:
    assert differ(runs("a", "b"), runs("b", "a")) is None


def test_a_clock_makes_no_difference() -> None:
    assert differ(runs("a", decode_s=1.0, tokens_per_s=2.0), runs("a", decode_s=1.5, tokens_per_s=3.0)) is None


def test_the_last_bit_makes_a_difference() -> None:
    assert differ(runs("a", mean_entropy_bits=0.3), runs("a", mean_entropy_bits=0.1 + 0.2)) == Difference(
        "decode_runs", {"prompt_id": "a", "repetition": 1}, "mean_entropy_bits", 0.3, 0.1 + 0.2
    )


def test_the_first_row_that_differs_is_told_and_of_it_the_first_column() -> None:
    theirs = [*runs("a"), *runs("b", text="other"), *runs("c", n_tokens=99, text="other")]
    found = differ(runs("c", "b", "a"), theirs)
    assert found is not None
    assert (found.key["prompt_id"], found.column) == ("b", "text")
    found = differ(runs("c"), theirs[2:])
    assert found is not None
    assert found.column == "n_tokens"


@pytest.mark.parametrize(
    ("ours", "theirs", "missing", "side"),
    [
        (["a", "b"], ["a"], "b", "first"),
        (["a"], ["a", "b"], "b", "second"),
        (["b", "c"], ["a", "b", "c"], "a", "second"),
        (["a", "b", "c"], ["a", "c"], "b", "first"),
        ([], ["a"], "a", "second"),
    ],
)
def test_a_row_that_only_one_side_has_is_named(ours: list[str], theirs: list[str], missing: str, side: str) -> None:
    found = differ(runs(*ours), runs(*theirs))
    assert str(found) == f"decode_runs: the row prompt_id='{missing}', repetition=1 is only in the {side}"


def test_null_and_zero_differ() -> None:
    found = differ([example("errors", message="")], [example("errors", message="x")], "errors")
    assert found is not None
    assert found.column is None
    tokens = [[example("decode_tokens", draft_entropy_bits=value)] for value in (None, 0.0)]
    found = differ(*tokens, "decode_tokens")
    assert found is not None
    assert (found.first, found.second) == (None, 0.0)


def test_runs_are_compared_table_by_table(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for directory, text in ((first, "one"), (second, "two")):
        publish_table(directory, "decode_runs", to_table("decode_runs", runs("a", text=text)))
        publish_table(directory, "spec_runs", to_table("spec_runs", []))
    found = first_difference(first, second)
    assert found is not None
    assert str(found) == "decode_runs: text of prompt_id='a', repetition=1 is 'one' in the first, 'two' in the second"
    assert first_difference(first, first) is None
    (second / "tables/decode_runs.parquet").unlink()
    with pytest.raises(UserError, match="has no table decode_runs"):
        first_difference(first, second)


def test_every_column_in_seconds_is_one_of_a_clock() -> None:
    columns = {field.name: field.metadata["unit"] for name in MEASURED_TABLES for field in fields(TABLES[name])}
    assert {name for name, unit in columns.items() if unit in ("s", "1/s")} <= TIMING_COLUMNS
    assert columns.keys() >= TIMING_COLUMNS
