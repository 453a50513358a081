"""A run directory with the made-up tables of `synthetic`, as the commands would leave it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from specstudy.tables import manifest
from specstudy.tables.run_directory import publish_table, run_directory
from specstudy.tables.schema import schema_of


def write_run(
    output_dir: Path,
    tables: Mapping[str, pd.DataFrame],
    config: Mapping[str, object],
    sections: Mapping[str, Mapping[str, Any]] | None = None,
) -> Path:
    """Writes a finished run, `latest` pointing to it; `sections` are written to its manifest."""
    with run_directory(output_dir, models="made", prompts="up", config=config) as path:
        manifest.start(path)
        for name, frame in tables.items():
            schema = schema_of(name)
            rows = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
            publish_table(path, name, rows.replace_schema_metadata(schema.metadata))
        for section, content in (sections or {}).items():
            manifest.update(path, section, content)
        manifest.finish(path)
    return path
