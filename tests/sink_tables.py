"""Small prefill and decode tables, written position by position, for analyses of sinks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from specstudy.analysis.measures import CONTEXT_MEASURES

# A ChatML prompt without a system message around what the user wrote.
OPENING = (("<|im_start|>", "role_marker"), ("user", "role_name"), ("\n", "role_newline"))
CLOSING = (
    ("<|im_end|>", "end_marker"),
    ("\n", "end_newline"),
    ("<|im_start|>", "generation_prompt+0"),
    ("assistant", "generation_prompt+1"),
    ("\n", "generation_prompt+2"),
)


def prompt_tables(
    content_z: Sequence[Sequence[float]],
    tokens: Sequence[Sequence[str]] | None = None,
    structural_z: float | Sequence[float] = 0.0,
    window: int = 6,
    generated_z: Sequence[Sequence[float]] | None = None,
) -> dict[str, pd.DataFrame]:
    """`prefill_tokens` and `decode_attention` of prompts whose content has the given z-scores.

    Each prompt is OPENING, its content, CLOSING. `structural_z`: one number, or one for each template token in order.
    The last `window` positions carry no `z_window`. Attention is exp(z) throughout. `generated_z` is the content's
    `z_generated` where it is not the same as the others.
    """
    prefill, decode = [], []
    for number, z_content in enumerate(content_z):
        words = tokens[number] if tokens else [f"w{i}" for i in range(len(z_content))]
        seen_z = generated_z[number] if generated_z else z_content
        template = np.broadcast_to(np.asarray(structural_z, dtype=float), len(OPENING) + len(CLOSING))
        before, after = template[: len(OPENING)], template[len(OPENING) :]
        z = np.concatenate([before, z_content, after])
        seen = np.concatenate([before, seen_z, after])
        texts = [*OPENING, *((word, None) for word in words), *CLOSING]
        prompt_id = f"p{number:02d}"
        for position, (text, role) in enumerate(texts):
            in_window = position >= len(texts) - window
            prefill.append(
                {
                    "prompt_id": prompt_id,
                    "category": "any",
                    "position": position,
                    "token_id": _id(text),
                    "token": text,
                    "structural_role": role,
                    "is_structural": role is not None,
                    "attention_received": np.exp(z[position]),
                    "attention_window": np.nan if in_window else np.exp(z[position]),
                    "z_score": z[position],
                    "z_window": np.nan if in_window else z[position],
                    "null_reason": "inside the observation window" if in_window else None,
                }
            )
            decode.append(
                {
                    "prompt_id": prompt_id,
                    "repetition": 0,
                    "position": position,
                    "attention_from_generated": np.exp(seen[position]),
                    "z_generated": seen[position],
                    "null_reason": None,
                }
            )
    return {"prefill_tokens": pd.DataFrame(prefill), "decode_attention": pd.DataFrame(decode)}


def prompt_measures(n: int = 40, **measures: np.ndarray) -> pd.DataFrame:
    """A prompt frame whose context measures are noise unless given; the lengths are all different."""
    rng = np.random.default_rng(0)
    names = [f"p{i:02d}" for i in range(n)]
    frame = pd.DataFrame({name: rng.normal(5, 1, n) for name in CONTEXT_MEASURES}, index=names)
    return frame.assign(group=names, n_tokens=np.arange(20.0, 20.0 + n), **measures)


def _id(text: str) -> int:
    return int.from_bytes(text.encode(), "big") % 2**31


def by(rows: Sequence[Any], **keys: object) -> Any:
    """The only row with these values."""
    (row,) = [row for row in rows if all(getattr(row, name) == value for name, value in keys.items())]
    return row
