"""One row a prompt position: the part it plays, and the three ways in which attention to it was measured."""

from __future__ import annotations

import numpy as np
import pandas as pd

from specstudy.analysis.join import Tables, frame_of, group_codes, numbers

ATTENTION_OF = {
    "z_score": "attention_received",
    "z_window": "attention_window",
    "z_generated": "attention_from_generated",
}
"""The z-scores, each with the attention it is made from."""
Z_MEASURES = tuple(ATTENTION_OF)

FIRST, INNER, BOUNDARY, CONTENT = "first", "inner", "boundary", "content"
PLACES = (FIRST, INNER, BOUNDARY, CONTENT)


def position_frame(tables: Tables) -> pd.DataFrame:
    """Every prompt position, by prompt and position: keys, token, place, structural_role, attention, z-scores.

    `place` is `first` (position 0), `boundary` (the run of template tokens that closes the prompt, after its last
    content), `inner` (every other template token) or `content`. `structural_role` of content is `content`. `prompt` is
    the prompt's number from 0, `group` that of its group (what intervals draw together). What the answer attends to is
    averaged over repetitions. NaN where not defined; `null_reason` holds the table's own reason for the prefill
    measures, `null_reason_generated` that for the answer's.
    """
    tokens = frame_of(tables, "prefill_tokens")
    frame = pd.DataFrame(
        {
            "prompt_id": tokens["prompt_id"].astype(object),
            "position": numbers(tokens["position"]).astype(np.int64),
            "token_id": numbers(tokens["token_id"]).astype(np.int64),
            "token": tokens["token"].astype(object),
            "structural_role": tokens["structural_role"].astype(object),
            "is_content": ~tokens["is_structural"].to_numpy(dtype=bool),
            "null_reason": tokens["null_reason"].astype(object),
        }
    )
    for name in ("attention_received", "attention_window", "z_score", "z_window"):
        frame[name] = numbers(tokens[name])
    frame = frame.join(_from_generated(tables), on=["prompt_id", "position"])
    frame = frame.sort_values(["prompt_id", "position"], ignore_index=True)
    frame["prompt"] = pd.factorize(frame["prompt_id"])[0]
    frame["group"] = group_codes(tables, frame["prompt_id"])
    frame["place"] = _places(frame)
    frame["structural_role"] = np.where(frame["place"] == CONTENT, CONTENT, frame["structural_role"])
    return frame


def _from_generated(tables: Tables) -> pd.DataFrame:
    seen = frame_of(tables, "decode_attention")
    keys = [seen["prompt_id"].astype(object), numbers(seen["position"]).astype(np.int64)]
    columns = pd.DataFrame(
        {name: numbers(seen[name]) for name in ("attention_from_generated", "z_generated")}, index=seen.index
    )
    grouped = columns.groupby(keys)
    reasons = seen["null_reason"].astype(object).groupby(keys).first()
    return grouped.mean().assign(null_reason_generated=reasons).rename_axis(["prompt_id", "position"])


def _places(frame: pd.DataFrame) -> np.ndarray:
    content = frame["is_content"].to_numpy()
    # A prompt without content has no place that closes it: its last content is at infinity.
    last_content = frame["position"].where(content, -1).groupby(frame["prompt"]).transform("max").replace(-1, np.inf)
    closing = (frame["position"] > last_content).to_numpy()
    first = (frame["position"] == 0).to_numpy()
    return np.select([first, content, closing], [FIRST, CONTENT, BOUNDARY], default=INNER)
