"""Which columns hold times, and so differ between two runs that are otherwise equal to the bit."""

from __future__ import annotations

import re

import pyarrow as pa

_TIMING_COLUMN = re.compile(
    r".*_s|.*_time_share|speedup|tokens_per_s|target_efficiency|cost_ratio_time|theoretical_speedup_(time|full)"
)


def without_timing(rows: pa.Table) -> pa.Table:
    """The table without its timing columns."""
    return rows.drop_columns([name for name in rows.column_names if _TIMING_COLUMN.fullmatch(name)])
