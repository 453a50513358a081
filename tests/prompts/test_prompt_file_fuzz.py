"""Whatever bytes a prompt file holds: a list of prompts that can be stored, or one clear line."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import NO_MODELS, last_line

from specstudy.errors import UserError
from specstudy.prompts import Prompt, read_prompts

NAMES = st.sampled_from(
    ["text", "prompt_id", "category", "system", "messages", "conversations", "turns", "other"]
) | st.text(max_size=5)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant"]) | SCALARS, "content": st.text(max_size=9) | SCALARS},
        optional={"name": SCALARS},
    ),
    max_size=4,
)
VALUES = SCALARS | MESSAGES | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text(max_size=3), SCALARS, max_size=2)
GOOD_ROWS = st.fixed_dictionaries({"text": st.text(min_size=1, max_size=20)}, optional={"system": st.text(max_size=9)})
ROWS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4) | GOOD_ROWS, max_size=4)
TEXT_COLUMNS = st.lists(st.text(max_size=9) | st.none(), min_size=1, max_size=4)


def json_lines(rows: list[dict[str, object]], line_end: str) -> bytes:
    return line_end.join(json.dumps(row) for row in rows).encode()


def csv_table(rows: list[list[str]], line_end: str) -> bytes:
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator=line_end).writerows(rows)
    return file.getvalue().encode(errors="replace")


def parquet(texts: list[str | None]) -> bytes:
    sink = io.BytesIO()
    clean = [None if text is None else text.encode(errors="replace").decode() for text in texts]
    pq.write_table(pa.table({"text": pa.array(clean, pa.string()), "n": list(range(len(clean)))}), sink)
    return sink.getvalue()


LINE_ENDS = st.sampled_from(["\n", "\r\n", "\r"])
CELLS = NAMES | st.text(max_size=9)
CONTENTS = st.one_of(
    st.tuples(st.just(".jsonl"), st.builds(json_lines, ROWS, LINE_ENDS)),
    st.tuples(st.just(".json"), ROWS.map(lambda rows: json.dumps(rows).encode())),
    st.tuples(
        st.sampled_from([".csv", ".tsv"]),
        st.builds(csv_table, st.lists(st.lists(CELLS, max_size=4), max_size=4), LINE_ENDS),
    ),
    st.tuples(st.just(".parquet"), st.builds(parquet, TEXT_COLUMNS)),
    st.tuples(st.just(".txt"), st.text(max_size=60).map(lambda text: text.encode(errors="replace"))),
    st.tuples(st.sampled_from([".jsonl", ".json", ".csv", ".csv.gz", ".parquet", ".txt"]), st.binary(max_size=80)),
)


@st.composite
def prompt_files(draw: st.DrawFn) -> tuple[str, bytes]:
    """A file's ending and its bytes, whole or with a few of them changed, cut off or put in front."""
    ending, content = draw(CONTENTS)
    damaged = bytearray(content)
    for place, value in draw(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=2)):
        if damaged:
            damaged[place % len(damaged)] = value
    cut = draw(st.sampled_from([0, 0, 0, 1, 7]))
    start = draw(st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf", b"\x00"]))
    return ending, start + bytes(damaged[: len(damaged) - cut])


def read_whatever_it_is(file: tuple[str, bytes]) -> None:
    ending, content = file
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"p{ending}"
        path.write_bytes(content)
        line = last_line(["prompts=file", f"prompts.path={path}"])
        if line == NO_MODELS:
            prompts = read_prompts(path)
            assert prompts
            assert len({p.prompt_id for p in prompts}) == len(prompts)
            for prompt in prompts:
                assert_can_be_stored(prompt)
        else:
            assert str(path) in line
            assert len(line) < 600
            with pytest.raises(UserError):
                read_prompts(path)


def assert_can_be_stored(prompt: Prompt) -> None:
    assert prompt.text.strip()
    assert prompt.prompt_id.strip()
    for text in (prompt.prompt_id, prompt.category, *(m.content for m in prompt.messages)):
        pa.array([text], pa.string())


@given(prompt_files())
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_any_prompt_file(file: tuple[str, bytes]) -> None:
    read_whatever_it_is(file)


@pytest.mark.long
@given(prompt_files())
@settings(max_examples=1000, suppress_health_check=list(HealthCheck))
def test_a_thousand_prompt_files(file: tuple[str, bytes]) -> None:
    read_whatever_it_is(file)
