"""What verifying costs: bytes read against the clock, and the speedup that each of them predicts."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Rows
from dataclasses import asdict

import numpy as np
import pandas as pd

from specstudy import formulas
from specstudy import routing_formulas as routing
from specstudy.analysis.bootstrap import AnalysisSettings, Estimate, Floats
from specstudy.analysis.join import Tables, frame_of, group_codes, numbers, of_condition
from specstudy.analysis.means import median, quotient
from specstudy.analysis.routing.resample import over_prompts, summed_by_prompt
from specstudy.analysis.routing.sequences import Layers, Sequence, prompt_groups
from specstudy.analysis.routing.windows import WindowFit, popularity, windows_of
from specstudy.condition import Condition
from specstudy.records import RoutingCost

BATCHES = (1, 2, 4, 8, 16, 32)


def costs_of(
    tables: Tables,
    condition: Condition,
    sequences: Rows[Sequence],
    passes: Rows[Sequence],
    fit: WindowFit | None,
    layers: Layers,
    settings: AnalysisSettings,
) -> Iterator[RoutingCost]:
    """A row a batch size. `passes` are those of this condition, `sequences` the answers; `fit` is of their windows.

    A batch is of independent sequences drawn from all prompts: what one of them leaves off, B leave off with that
    probability to the power B.
    """
    width, groups = condition.gamma + 1, prompt_groups(tables)
    windows, prompts = windows_of([s for s in passes if len(s.used) == width], width)
    if not len(windows):
        return
    shape = windows.shape[2:]
    off_one, off_pass = 1.0 - popularity(sequences), 1.0 - windows.any(1).mean(0, dtype=np.float64)
    answered = summed_by_prompt(
        [s.prompt for s in sequences],
        [np.append((~s.used).sum(0).ravel(), len(s.used)).astype(np.float64) for s in sequences],
        len(groups),
    )
    verified = summed_by_prompt(
        prompts, [np.append(~window.any(0).ravel(), True).astype(np.float64) for window in windows], len(groups)
    )
    sums, half = np.concatenate([answered, verified], axis=1), answered.shape[1]

    def read(off: Floats) -> Floats:
        """Bytes of a pass from P(an expert is off), [..., L, N] -> [...]."""
        return routing.bytes_read(layers.other_bytes, layers.expert_bytes, 1.0 - off)

    def ratio(off_one: Floats, off_pass: Floats) -> float:
        return float(read(off_one) / read(off_pass))

    for batch in BATCHES:

        def by_bytes(t: Floats, batch: int = batch) -> Floats:
            one, passed = (
                quotient(part[:, :-1], part[:, -1:]).reshape(-1, *shape) ** batch for part in (t[:, :half], t[:, half:])
            )
            return read(one) / read(passed)

        uniform = 1.0 - layers.n_chosen / layers.n_experts
        pair_off = None if fit is None else [off for off in fit.fitted if off is not None]
        pairwise = None
        if pair_off and len(pair_off) == len(layers.indices):
            pairwise = ratio(off_one**batch, np.array(pair_off) ** batch)
        found = over_prompts(sums, by_bytes, settings, groups)
        assert found.value is not None
        yield _row(
            tables,
            condition,
            settings,
            batch=batch,
            n=len(set(prompts)),
            distinct_one=float((1.0 - off_one**batch).sum(-1).mean()),
            distinct_pass=float((1.0 - off_pass**batch).sum(-1).mean()),
            **found.columns("by_bytes", "by_bytes_ci_"),
            by_bytes_uniform=ratio(np.full(shape, uniform**batch), np.full(shape, uniform ** (batch * width))),
            by_bytes_independent=ratio(off_one**batch, off_one ** (batch * width)),
            by_bytes_pairwise=pairwise,
        )


def _row(
    tables: Tables, condition: Condition, settings: AnalysisSettings, *, batch: int, by_bytes: float, **values: object
) -> RoutingCost:
    """With the clock, which was read for single sequences only, and the speedups by both."""
    runs = of_condition(frame_of(tables, "spec_runs"), condition)
    by_clock = _by_prompt(runs, numbers(runs["target_efficiency"]))
    clock = median(numbers(by_clock), settings, groups=group_codes(tables, by_clock.index))
    if batch > 1:
        clock = Estimate(0, null_reason="timed for one sequence at a time only")
    elif clock.value is None:
        clock = Estimate(0, null_reason="the verifier alone was not timed, or no round verified gamma drafted tokens")
    timed = clock.value is not None
    speedup = _by_prompt(runs, numbers(runs["speedup"]))
    return RoutingCost(
        **asdict(condition),
        **values,  # type: ignore[arg-type]  # mypy takes one type of value for every field
        batch=batch,
        by_bytes=by_bytes,
        speedup=median(numbers(speedup), settings).value if timed else None,
        speedup_by_bytes=_predicted(runs, condition, settings, np.full(len(runs), by_bytes)) if timed else None,
        speedup_by_clock=_predicted(runs, condition, settings, numbers(runs["target_efficiency"])) if timed else None,
        **clock.row(),
    )


def _predicted(
    runs: pd.DataFrame, condition: Condition, settings: AnalysisSettings, efficiencies: Floats
) -> float | None:
    """Median over prompts of the formula without overhead. None where drafts are not of gamma tokens, as it assumes;
    the runs themselves then have no theory."""
    alphas, costs, theory = (numbers(runs[n]) for n in ("alpha", "cost_ratio_time", "theoretical_speedup_full"))
    parts = zip(alphas, costs, efficiencies, theory, strict=True)
    values = [
        formulas.expected_speedup_full(alpha, condition.gamma, cost, efficiency, 0.0)
        if np.isfinite([alpha, cost, efficiency, known]).all()
        else np.nan
        for alpha, cost, efficiency, known in parts
    ]
    return median(numbers(_by_prompt(runs, np.array(values, dtype=np.float64))), settings).value


def _by_prompt(runs: pd.DataFrame, values: Floats) -> pd.Series:
    """Repetitions averaged within their prompts, by prompt_id; NaN where a prompt has none."""
    return pd.Series(values).groupby(runs["prompt_id"].to_numpy()).mean()
