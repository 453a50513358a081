"""How one measure goes with another over the versions of a prompt: mixed models with an intercept for each original.

The predictor is centred within versions that share a control, which are of one length and of one original prompt. So
what differs between prompts, and what a control changes by being longer, is no part of the slope; it is then the same
in a model with random intercepts as in one with fixed ones, and its interval is taken by resampling originals, or
groups of them, which allows slopes to differ from prompt to prompt.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pandas as pd
from statsmodels.regression.mixed_linear_model import MixedLM

from specstudy.analysis.bootstrap import FEWEST_DRAWN, AnalysisSettings, Estimate, Floats, estimate, resampled_totals
from specstudy.analysis.links import OF_CONTEXTS, control_kinds
from specstudy.analysis.means import quotient
from specstudy.records import VersionModel

ALL = "all"
_IMPOSED = "mean_sampling_entropy_bits"
_OF_TEMPERATURES = ((_IMPOSED, "alpha_expected"), (_IMPOSED, "mean_expected_accept"))
_OF_LOWERING = (("mass_moved", "mean_entropy_bits"), ("mass_moved", "mean_expected_accept"))
_OF_OTHERS = tuple((link.moved, link.watched) for link in OF_CONTEXTS if link.moved)


def version_models(versions: pd.DataFrame, settings: AnalysisSettings) -> list[VersionModel]:
    """A row a pair of measures: for each way of imposing a temperature or of lowering a key, else over all versions
    together."""
    rows = []
    for kinds, frame, pairs in _subsets(versions):
        for x, y in pairs:
            known = frame.dropna(subset=[x, y])
            if len(known):
                rows.append(_model(kinds, x, y, known, settings))
    return rows


def _subsets(versions: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, tuple[tuple[str, str], ...]]]:
    imposed = versions[["temperature", "lowered"]].notna().any(axis=1).to_numpy(dtype=bool)
    if not imposed.any():
        yield ALL, versions.assign(block=_blocks(versions)), _OF_OTHERS
        return
    pairs = _OF_LOWERING if versions["lowered"].notna().any() else _OF_TEMPERATURES
    for kind in versions.loc[imposed, "kind"].unique():
        frame = versions[~imposed | (versions["kind"] == kind).to_numpy(dtype=bool)]
        yield str(kind), frame.assign(block=frame["original_id"]), pairs


def _blocks(versions: pd.DataFrame) -> pd.Series:
    """The control that a version shares with others; a control is its own."""
    own = pd.Series(versions.index, index=versions.index, dtype=object)
    return own.where(versions["kind"].isin(control_kinds(versions)), versions["control_id"])


def _model(kinds: str, x: str, y: str, frame: pd.DataFrame, settings: AnalysisSettings) -> VersionModel:
    moved = frame[x] - frame.groupby("block")[x].transform("mean")
    slope = _slope(moved, frame[y], frame["group"], settings)
    between, residual = _deviations(moved, frame[y], frame["original_id"]) if slope.low is not None else (None, None)
    return VersionModel(
        kinds=kinds,
        x=x,
        y=y,
        n=len(frame),
        n_prompts=int(frame["original_id"].nunique()),
        **slope.columns("slope"),
        p_value=slope.p_value,
        between_prompts_sd=between,
        residual_sd=residual,
        null_reason=slope.null_reason,
    )


def _slope(x: pd.Series, y: pd.Series, groups: pd.Series, settings: AnalysisSettings) -> Estimate:
    """Least squares slope on a predictor that is centred within originals; resampled by group of originals."""
    products = pd.DataFrame({"xy": x * y, "xx": x * x}).groupby(groups.to_numpy()).sum()
    products = products[products["xx"] > 1e-12]
    if len(products) < FEWEST_DRAWN:
        why = f"{x.name} varies in {len(products)} independent prompts; {FEWEST_DRAWN} are needed"
        return Estimate(len(products), null_reason=why)
    found = resampled_totals(products[["xy", "xx"]].to_numpy(), lambda sums: quotient(*sums.T), settings)
    return estimate(len(products), found, settings.confidence).against(0.0)


def _deviations(x: pd.Series, y: pd.Series, originals: pd.Series) -> tuple[float | None, float | None]:
    """Standard deviations of the random intercept and of the rest (restricted maximum likelihood); None where the fit
    does not converge."""
    exog: Floats = np.column_stack([np.ones(len(x)), x.to_numpy()])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fit = MixedLM(y.to_numpy(), exog, groups=originals.to_numpy()).fit(reml=True)
        except np.linalg.LinAlgError:
            return None, None
    if not fit.converged:
        return None, None
    return float(np.sqrt(np.asarray(fit.cov_re)[0, 0])), float(np.sqrt(fit.scale))
