from __future__ import annotations

import io
import math
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_examples import example, examples, rows

from specstudy.records import KEY_COLUMNS, TABLES
from specstudy.tables.schema import (
    InvalidRecordError,
    check_unique,
    empty_table,
    schema_of,
    sort_by_key,
    to_records,
    to_table,
    validate,
    with_declared_schema,
)

UNITS_BY_ENDING = {"_bits": "bits", "_per_s": "1/s", "_s": "s"}


@pytest.mark.parametrize(
    ("column", "arrow_type", "nullable"),
    [
        ("prompt_id", pa.string(), False),
        ("step", pa.int64(), False),
        ("entropy_bits", pa.float64(), False),
        ("draft_entropy_bits", pa.float64(), True),
        ("is_word_start", pa.bool_(), False),
        ("top_ids", pa.list_(pa.field("element", pa.int64(), nullable=False)), False),
        ("top_probs", pa.list_(pa.field("element", pa.float64(), nullable=False)), False),
    ],
)
def test_columns_have_the_declared_types(column: str, arrow_type: pa.DataType, nullable: bool) -> None:
    field = schema_of("decode_tokens").field(column)
    assert field.type.equals(arrow_type)
    assert field.nullable is nullable


@pytest.mark.parametrize("table", TABLES)
def test_every_column_says_what_it_means_and_its_unit_is_that_of_its_name(table: str) -> None:
    for field in schema_of(table):
        assert field.metadata[b"meaning"]
        unit = field.metadata[b"unit"].decode()
        expected = next((unit for ending, unit in UNITS_BY_ENDING.items() if field.name.endswith(ending)), None)
        if expected is not None:
            assert unit == expected, field.name


def test_units_survive_a_file() -> None:
    file = io.BytesIO()
    pq.write_table(to_table("decode_tokens", examples("decode_tokens", 1)), file)
    assert pq.read_table(file).schema.field("entropy_bits").metadata[b"unit"] == b"bits"


@pytest.mark.parametrize("table", TABLES)
def test_keys_are_required_columns_of_their_table(table: str) -> None:
    schema = schema_of(table)
    assert KEY_COLUMNS[table]
    nullable = {name for name in KEY_COLUMNS[table] if schema.field(name).nullable}
    # No threshold is a value of its own: that of the rule `none`. So are no draft (decode) and no layer (all of them).
    of_routing = {"proposer", "stop", "gamma", "round", "layer"} if table.startswith("routing_") else set()
    assert nullable <= {"stop_threshold", "reference_stop_threshold"} | of_routing


@pytest.mark.parametrize("table", TABLES)
def test_a_column_of_nothing_but_nulls_keeps_its_type(table: str) -> None:
    rows_of_nulls = to_table(table, [example(table)])
    assert rows_of_nulls.schema.equals(schema_of(table), check_metadata=True)
    assert empty_table(table).schema.equals(schema_of(table), check_metadata=True)
    assert pa.concat_tables([rows_of_nulls, empty_table(table)]).num_rows == 1


@given(st.data())
def test_rows_come_back_from_a_file_as_they_were(data: st.DataObject) -> None:
    table = data.draw(st.sampled_from(list(TABLES)))
    records = data.draw(rows(table))
    file = io.BytesIO()
    pq.write_table(to_table(table, records), file, compression="zstd")
    assert to_records(table, with_declared_schema(table, pq.read_table(file))) == records


@pytest.mark.parametrize(
    ("column", "value", "fault"),
    [
        ("logprob", math.nan, "nan is not a finite number"),
        ("logprob", -math.inf, "-inf is not a finite number"),
        ("logprob", np.float32("nan"), "nan is not a finite number"),
        ("draft_entropy_bits", math.nan, "nan is not a finite number"),
        ("top_probs", [0.5, math.inf], "inf is not a finite number"),
        ("logprob", None, "null, but the column is not optional"),
        ("token", None, "null, but the column is not optional"),
        ("top_ids", None, "null, but the column is not optional"),
        ("top_ids", [1, None], "a null inside the list"),
        ("step", 2.5, "2.5 is no int64"),
        ("step", 2.0, "2.0 is no int64"),
        ("step", True, "True is no int64"),
        ("step", math.nan, "nan is no int64"),
        ("step", 2**63, f"{2**63} is no int64"),
        ("logprob", "0.5", "'0.5' is no double"),
        ("logprob", True, "True is no double"),
        ("is_word_start", 1, "1 is no bool"),
        ("token", b"word", "b'word' is no string"),
        ("token", "\ud800", "is no string"),
        ("top_ids", 5, "5 is no list"),
        ("top_ids", [1, 2.5], "is no list"),
    ],
)
def test_a_value_the_column_cannot_hold_is_refused_by_name(column: str, value: object, fault: str) -> None:
    records = [*examples("decode_tokens", 3), example("decode_tokens", **{column: value})]
    with pytest.raises(InvalidRecordError, match=f"^table decode_tokens, column {column}, row 3: .*{re.escape(fault)}"):
        to_table("decode_tokens", records)


def test_numpy_scalars_are_values() -> None:
    record = example("decode_tokens", step=np.int32(7), logprob=np.float32(-0.5), is_word_start=np.bool_(False))
    row = to_table("decode_tokens", [record]).to_pylist()[0]
    assert (row["step"], row["logprob"], row["is_word_start"]) == (7, -0.5, False)


def test_a_row_of_another_table_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="row 1: expected a DecodeToken, found a DecodeRun"):
        to_table("decode_tokens", [example("decode_tokens"), example("decode_runs")])


def test_a_nan_in_a_later_chunk_is_found_in_its_row() -> None:
    good = to_table("decode_tokens", examples("decode_tokens", 4))
    place = good.schema.get_field_index("top_probs")
    bad = good.set_column(
        place, good.schema.field(place), pa.array([[0.5], [], [], [0.5, math.nan]], good["top_probs"].type)
    )
    with pytest.raises(InvalidRecordError, match="column top_probs, row 7: nan"):
        validate("decode_tokens", pa.concat_tables([good, bad]))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda table: table.drop_columns(["text"]), r"missing \['text'\], unknown \[\]"),
        (lambda table: table.append_column("extra", [[1]]), r"missing \[\], unknown \['extra'\]"),
        (lambda table: table.select(table.column_names[::-1]), "another order of columns"),
        (lambda table: table.set_column(3, "n_prompt_tokens", [[1.0]]), "column n_prompt_tokens is"),
    ],
)
def test_other_columns_than_declared_are_refused(change: object, fault: str) -> None:
    assert callable(change)
    with pytest.raises(InvalidRecordError, match=fault):
        validate("decode_runs", change(to_table("decode_runs", examples("decode_runs", 1))))


def test_a_doubled_key_is_named() -> None:
    doubled = [*examples("spec_rounds", 3), example("spec_rounds", prompt_id="prompt-001", n_accepted=3)]
    with pytest.raises(InvalidRecordError, match=r"table spec_rounds: 1 keys .* prompt_id='prompt-001', proposer="):
        check_unique("spec_rounds", to_table("spec_rounds", doubled))


@given(st.permutations(range(6)))
def test_sorting_by_key_forgets_the_order(order: list[int]) -> None:
    records = [example("decode_tokens", prompt_id=f"p{n // 3}", step=n % 3) for n in range(6)]
    shuffled = to_table("decode_tokens", [records[n] for n in order])
    assert to_records("decode_tokens", sort_by_key("decode_tokens", shuffled)) == records
