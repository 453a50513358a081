"""What it costs to make a stage's tables of very many results: time a result, and memory, at several numbers of them.

The results are made: one generation of 32 tokens, again and again under other prompt ids, as they come from the store.
"""

from __future__ import annotations

import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pyarrow as pa

from specstudy.records import STAGE_TABLES, TABLES
from specstudy.tables.run_directory import consolidate
from specstudy.tables.schema import to_table
from specstudy.tables.store import Store, result_key

STAGE = "decode"
N_TOKENS = 32
NUMBERS = (10_000, 30_000, 100_000)
_MADE: dict[Any, Any] = {
    list[str]: ["a", "b"],
    str: "text",
    int: 1,
    float: 0.25,
    bool: True,
    list[int]: [1, 2, 3],
    list[float]: [0.5, 0.2],
}


def made(table: str, **values: object) -> object:
    """A row of a table with something in every column."""
    row_type = TABLES[table]
    hints = get_type_hints(row_type)
    given = {field.name: values.get(field.name, _value(hints[field.name])) for field in fields(row_type)}
    return row_type(**given)


def _value(hint: Any) -> Any:
    return _MADE[hint] if hint in _MADE else _MADE[get_args(hint)[0]]  # the type, or the type where null is allowed


def made_records() -> dict[str, list[object]]:
    """The rows of a generation."""
    return {
        name: [made(name, **{place: n}) for n in range(N_TOKENS)] if place else [made(name)]
        for name, place in (("decode_tokens", "step"), ("decode_runs", ""), ("decode_attention", "position"))
    }


def results(n: int) -> Iterator[dict[str, pa.Table]]:
    """Results in the order of their keys."""
    one = {name: to_table(name, rows) for name, rows in made_records().items()}
    for i in range(n):
        prompt_id = f"prompt-{i:06}"
        yield {
            name: rows.set_column(0, rows.schema.field(0), [[prompt_id] * rows.num_rows]) for name, rows in one.items()
        }


def peak_mebibytes() -> float:
    """Most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def store_round_trip_s(directory: Path, n: int = 200) -> tuple[float, float]:
    """Seconds to write a result to the store (synced), and to read it."""
    store, records = Store(directory / "store"), made_records()
    parts = [{"prompt": i} for i in range(n)]
    started = time.perf_counter()
    for part in parts:
        store.put(STAGE, result_key(part), part, records)
    written = time.perf_counter()
    for part in parts:
        assert store.has(STAGE, result_key(part))
    return (written - started) / n, (time.perf_counter() - written) / n


def main() -> None:
    assert set(made_records()) == set(STAGE_TABLES[STAGE])
    directory = Path(tempfile.mkdtemp())
    try:
        write_s, read_s = store_round_trip_s(directory)
        print(f"figure store_write_ms {1000 * write_s:.2f}")
        print(f"figure store_read_ms {1000 * read_s:.2f}")
        for n in NUMBERS:
            before = time.perf_counter()
            for _ in results(n):
                pass
            making_s = time.perf_counter() - before
            before = time.perf_counter()
            consolidate(directory / str(n), STAGE, results(n))
            seconds = time.perf_counter() - before - making_s
            print(f"figure consolidate_{n}_results_s {seconds:.1f}", flush=True)
            print(f"figure consolidate_{n}_results_peak_mib {peak_mebibytes():.0f}", flush=True)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
