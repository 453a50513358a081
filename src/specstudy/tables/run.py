"""A run opened for reading: its manifest, its configuration, and its tables as pandas frames."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from specstudy.records import TABLES
from specstudy.tables import manifest
from specstudy.tables.run_directory import read_config, read_table, resolve_run, table_path

_NULLABLE_TYPES = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}


@dataclass(frozen=True)
class Run:
    """A run directory. `run.table("spec_runs")` and `run.spec_runs` are the same frame, read anew each time."""

    path: Path
    manifest: dict[str, Any]
    config: dict[str, object]

    @property
    def tables(self) -> list[str]:
        """Names of the tables that the run has so far."""
        return [name for name in TABLES if table_path(self.path, name).is_file()]

    def table(self, name: str) -> pd.DataFrame:
        """A table as a frame. Raises UserError if it is unknown, missing, damaged or outdated."""
        return to_frame(read_table(self.path, name))

    def frames(self) -> dict[str, pd.DataFrame]:
        """Every table that the run has so far, by name."""
        return {name: self.table(name) for name in self.tables}

    def __getattr__(self, name: str) -> pd.DataFrame:
        if name not in TABLES:
            raise AttributeError(f"a run has no {name!r}; its tables are {', '.join(TABLES)}")
        return self.table(name)

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *self.tables]


def open_run(path: str | os.PathLike[str]) -> Run:
    """Opens a run directory, or what `outputs/latest` points to. Raises UserError if there is no run there."""
    run_dir = resolve_run(Path(path))
    return Run(run_dir, manifest.read(run_dir), read_config(run_dir))


def to_frame(rows: pa.Table) -> pd.DataFrame:
    """A table as a pandas frame. Integers and booleans that may be null stay such, in pandas' nullable types;
    numbers that may be null are float64 with NaN."""
    frame: pd.DataFrame = rows.to_pandas()
    for field in rows.schema:
        if field.nullable and field.type in _NULLABLE_TYPES:
            frame[field.name] = rows.column(field.name).to_pandas(types_mapper=_NULLABLE_TYPES.get)
    return frame
