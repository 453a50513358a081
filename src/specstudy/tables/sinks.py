"""What a sink threshold makes of stored z-scores: results are stored without it, so that another measures nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from specstudy import formulas


def at_threshold(tables: Mapping[str, pa.Table], threshold: float) -> dict[str, pa.Table]:
    """The prefill tables of one prompt with every column that depends on the sink threshold."""
    tokens, prompt = tables["prefill_tokens"], tables["prefill_prompts"]
    content = ~tokens["is_structural"].to_numpy()
    sinks = _over(tokens["z_score"], threshold)
    n_sinks = {"n_sinks_structural": None, "n_sinks_content": None}
    if sinks.null_count == 0:
        is_sink = sinks.to_numpy()
        n_sinks = {"n_sinks_structural": (is_sink & ~content).sum(), "n_sinks_content": (is_sink & content).sum()}
    return {
        **tables,
        "prefill_tokens": _with(tokens, {"is_sink": sinks, "is_sink_window": _over(tokens["z_window"], threshold)}),
        "prefill_prompts": _with(
            prompt,
            {
                **{name: [count] for name, count in n_sinks.items()},
                "context_health": [_health(tokens["z_score"], content, threshold)],
                "context_health_window": [_health(tokens["z_window"], content, threshold)],
            },
        ),
    }


def _over(z_scores: pa.ChunkedArray, threshold: float) -> pa.ChunkedArray:
    return pc.greater(z_scores, threshold)


def _health(z_scores: pa.ChunkedArray, content: NDArray[np.bool_], threshold: float) -> float | None:
    """The series' score over the content positions that have a z-score; None if none has."""
    known = content & z_scores.is_valid().to_numpy()
    return formulas.context_health(z_scores.to_numpy()[known], threshold) if known.any() else None


def _with(rows: pa.Table, columns: Mapping[str, object]) -> pa.Table:
    for name, values in columns.items():
        place = rows.schema.get_field_index(name)
        field = rows.schema.field(place)
        rows = rows.set_column(place, field, pa.array(values, field.type) if isinstance(values, list) else values)
    return rows
