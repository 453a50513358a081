"""Distinct experts of windows of consecutive tokens, against what popularity and pairs of tokens would give."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Rows
from dataclasses import dataclass

import numpy as np

from specstudy import routing_formulas as formulas
from specstudy.analysis.bootstrap import AnalysisSettings, Codes, Floats
from specstudy.analysis.means import nested_mean
from specstudy.analysis.routing.sequences import Layers, Sequence, Used
from specstudy.records import RoutingWindow

WINDOWS = tuple(range(2, 10))
FIT_TOLERANCE, FIT_SWEEPS = 1e-5, 1000


@dataclass(frozen=True)
class WindowFit:
    """Windows of W tokens. `never` float64 [L, N]: measured P(an expert is on for none of the tokens); `fitted`: the
    same by pairs, None where fitting failed in a layer, with its reason."""

    never: Floats
    fitted: list[Floats | None]
    reasons: list[str | None]


def windows_of(sequences: Rows[Sequence], width: int) -> tuple[Used, list[int]]:
    """All windows of `width` consecutive tokens, bool [n, W, L, N], and the prompt of each."""
    held = [s for s in sequences if len(s.used) >= width]
    views = [np.moveaxis(np.lib.stride_tricks.sliding_window_view(s.used, width, axis=0), -1, 1) for s in held]
    prompts = [s.prompt for s, view in zip(held, views, strict=True) for _ in range(len(view))]
    shape = (0, width, *(sequences[0].used.shape[1:] if sequences else (0, 0)))
    return (np.concatenate(views) if views else np.zeros(shape, dtype=bool)), prompts


def fit_windows(windows: Used) -> WindowFit:
    """Maximum entropy given popularity and pairs, in all layers at once: windows bool [n, W, L, N], n > 0."""
    n, width, n_layers, n_experts = windows.shape
    flat = windows.reshape(n, width, n_layers * n_experts)
    never, distance = formulas.never_on_in_windows(flat, FIT_TOLERANCE, FIT_SWEEPS)
    fitted: list[Floats | None] = []
    reasons: list[str | None] = []
    for layer in range(n_layers):
        own = slice(layer * n_experts, (layer + 1) * n_experts)
        if (worst := float(distance[own].max())) < FIT_TOLERANCE:
            fitted.append(never[own])
            reasons.append(None)
        else:
            fitted.append(None)
            reasons.append(f"fitting stopped {worst:.1e} away after {FIT_SWEEPS} sweeps")
    measured = 1.0 - windows.any(1).mean(0, dtype=np.float64)
    return WindowFit(measured, fitted, reasons)


def popularity(sequences: Rows[Sequence]) -> Floats:
    """P(expert is on) [L, N] over all tokens."""
    return np.asarray(np.concatenate([s.used for s in sequences]).mean(0, dtype=np.float64))


def window_rows(
    source: str,
    width: int,
    sequences: Rows[Sequence],
    popular: Floats,
    fit: WindowFit | None,
    layers: Layers,
    groups: Codes,
    settings: AnalysisSettings,
) -> Iterator[RoutingWindow]:
    """A row a layer, and one for their mean. Without a fit (passes are not predicted from themselves), no pairwise.

    `groups` int (prompts,): prompts of one group, numbered from 0, are drawn together.
    """
    windows, prompts = windows_of(sequences, width)
    if not len(windows):
        return
    distinct = windows.any(1).sum(-1, dtype=np.float64)
    uniform = formulas.expected_distinct_uniform(layers.n_experts, layers.n_chosen, width)
    independent = np.array([formulas.expected_distinct_independent(p, width) for p in popular])
    fitted = fit.fitted if fit else [None] * len(layers.indices)
    reasons = fit.reasons if fit else ["predicted for windows of answers only"] * len(layers.indices)
    pairwise = [None if never is None else float((1.0 - never).sum()) for never in fitted]
    failed = next((reason for reason in reasons if reason), None)

    def row(layer: int | None, values: Floats, alone: float, pair: float | None, why: str | None) -> RoutingWindow:
        found = nested_mean(values, groups[prompts], int(groups.max()) + 1, settings)
        return RoutingWindow(
            source=source,
            layer=layer,
            window=width,
            n_prompts=len(set(prompts)),
            n_windows=len(windows),
            **found.row(),
            uniform=uniform,
            independent=alone,
            pairwise=pair,
            pairwise_null_reason=why,
        )

    mean = None if failed else float(np.mean([value for value in pairwise if value is not None]))
    yield row(None, distinct.mean(1), float(independent.mean()), mean, failed)
    for place, layer in enumerate(layers.indices):
        yield row(layer, distinct[:, place], float(independent[place]), pairwise[place], reasons[place])
