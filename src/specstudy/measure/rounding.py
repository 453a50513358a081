"""What rounding may move, and no more: the limits of the self-check.

A limit is twice what the library's own cache changes on the same texts, within a floor and a ceiling by precision: the
library's cache may share the fault that is looked for. They are given in standard deviations of the logits over the
vocabulary. Measured on sound models, cached passes over 1 and 5 tokens at a time against uncached ones (torch 2.13,
x86, one thread; the 18 kinds of model of `tests/attention_models.py` at 38 and 132 tokens with three seeds, the
embedded pair at 92 and 1244 tokens): the largest root mean square difference, and the largest of a single logit,

    float32    kinds without experts 7.4e-6 and 2.1e-5, with experts 4.9e-6 and 1.2e-5, embedded pair 2.2e-6 and 1.7e-5
    bfloat16   kinds without experts 0.028 and 0.084, with experts 0.40 and 1.03, embedded pair 0.035 and 0.15
    float16    kinds without experts 0.007 and 0.015, with experts 0.31 and 0.88

In half precision a router's near tie sends a token to other experts, which moves single rows by any amount (one in a
hundred rows was over 0.041 in bfloat16, 0.004 in float16): there a few rows may lie beyond the limit. A cache that is
off by a token moves nearly every row, by 0.1 and more.
"""

from __future__ import annotations

import numpy as np
import torch

from specstudy.models.load import LanguageModel

CEILINGS = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.03}
FLOOR = 0.1
"""The floor as a share of the ceiling."""
SAFETY = 2.0
GAP = 5.0
"""Rounding turns the order of two logits where both move by half of their gap: a single logit moves by up to four times
the root mean square of all."""
SHARE_BEYOND = 0.1
ATTENTION_LIMITS = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 1e-2}
"""Of the errors of `models.attention_check`. Sound kernels of x86 were within 1e-6, 4e-3 and 4e-4 there; a later key
that is seen moves the first rows by a half."""


def limit(dtype: torch.dtype, rounding: float, scale: float, times: float = 1.0) -> float:
    """The limit of a difference that rounding makes as large as `rounding`, of logits whose standard deviation is
    `scale`; floor and ceiling `times` as high. NaN if either number is."""
    ceiling = times * CEILINGS[dtype] * scale
    return float(np.clip(SAFETY * rounding, FLOOR * ceiling, ceiling))


def n_may_lie_beyond(model: LanguageModel, n_rows: int) -> int:
    """Of so many rows of logits, those that a sound model may move beyond the limit."""
    reroutes = model.dimensions.n_experts > 0 and model.dtype != torch.float32
    return int(SHARE_BEYOND * n_rows) if reroutes else 0
