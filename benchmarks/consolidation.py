"""What it costs to make a stage's tables of very many results, and to read them for the analysis, at several numbers.

The results are made: one generation of 32 tokens, again and again under other prompt ids, as they come from the store.
Each number has a process of its own. `..._growth` is the time of a result among the most of them over that of
one among the fewest, 1 where time is linear; `consolidate_peak_growth` is the ratio of peak memories, 1 if bounded.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pyarrow as pa
from _processes import figure, measured, peak_mib

from specstudy.records import STAGE_TABLES, TABLES
from specstudy.tables.run import open_run
from specstudy.tables.run_directory import consolidate
from specstudy.tables.schema import to_table
from specstudy.tables.store import Store, result_key

STAGE = "decode"
N_TOKENS = 32
NUMBERS = (12_500, 25_000, 50_000, 100_000)
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


def consolidation_s(run_dir: Path, n: int) -> float:
    """Seconds to make the tables of n results, without those that making the results takes."""
    making_s = 0.0

    def timed() -> Iterator[dict[str, pa.Table]]:
        nonlocal making_s
        made_ones = results(n)
        while True:
            before_s = time.perf_counter()
            one = next(made_ones, None)
            making_s += time.perf_counter() - before_s
            if one is None:
                return
            yield one

    begun_s = time.perf_counter()
    consolidate(run_dir, STAGE, timed())
    return time.perf_counter() - begun_s - making_s


def reading_s(run_dir: Path) -> float:
    """Seconds to read all the tables as the analysis does."""
    for name in ("manifest.json", "config.yaml"):
        (run_dir / name).write_text("{}\n", encoding="utf-8")
    begun_s = time.perf_counter()
    opened = open_run(run_dir)
    tables = {name: opened.table(name) for name in opened.tables}
    ended_s = time.perf_counter()
    assert set(tables) == set(STAGE_TABLES[STAGE])
    return ended_s - begun_s


def measure(n: int) -> None:
    """Print what n results cost."""
    with tempfile.TemporaryDirectory() as place:
        figure(f"consolidate_{n}_s", consolidation_s(Path(place), n))
        figure(f"consolidate_{n}_peak_mib", peak_mib())
        figure(f"read_{n}_s", reading_s(Path(place)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=int, help="only measure this number of them, in this process")
    options = parser.parse_args()
    if options.results:
        measure(options.results)
        return
    assert set(made_records()) == set(STAGE_TABLES[STAGE])
    with tempfile.TemporaryDirectory() as place:
        write_s, read_s = store_round_trip_s(Path(place))
    figure("store_write_ms", 1000 * write_s)
    figure("store_read_ms", 1000 * read_s)
    fewest, *_, most = [measured(__file__, "--results", n) for n in NUMBERS]
    n_times = NUMBERS[-1] / NUMBERS[0]
    figure("consolidate_growth", most["consolidate_s"] / fewest["consolidate_s"] / n_times)
    figure("consolidate_peak_growth", most["consolidate_peak_mib"] / fewest["consolidate_peak_mib"])
    figure("read_growth", most["read_s"] / fewest["read_s"] / n_times)


if __name__ == "__main__":
    main()
