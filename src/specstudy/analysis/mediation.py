"""The mediated path: context -> entropy -> acceptance, with category, length and surprisal of the prompt held constant.

All paths are in standard deviations of ranks after the covariates are removed, so they follow from three correlations:
a = r_xm, b = (r_my - r_xm r_xy) / (1 - r_xm^2), direct = (r_xy - r_xm r_my) / (1 - r_xm^2), total = r_xy = ab + direct.
A product of coefficients is not normally distributed: the interval is a bootstrap over prompts (MacKinnon et al. 2004).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from specstudy.analysis.bootstrap import AnalysisSettings, Codes, Estimate, Floats, estimate, resampled
from specstudy.analysis.correlation import design_of, resampled_correlation, taken_by, why_undefined
from specstudy.analysis.correlations import prompt_subsets
from specstudy.analysis.measures import Key

CAUTION = (
    "Mediation is not causation: the paths are what correlations would look like if the chain held, and another cause "
    "of entropy and acceptance would draw the same picture."
)
PATHS = ("context_to_entropy", "entropy_to_acceptance_given_context", "indirect", "direct", "total")


def mediation(prompts: pd.DataFrame, x: str, mediator: str, y: Key, settings: AnalysisSettings) -> dict[str, Estimate]:
    """Estimates of the paths named in PATHS over a prompt frame; each with its reason where none is defined."""
    rows, covariates = prompt_subsets(prompts)["given_confounders"]
    values = rows[[x, mediator, y]].to_numpy(dtype=np.float64)
    assert covariates is not None
    kept = np.isfinite(values).all(axis=1) & np.isfinite(covariates).all(axis=1)
    columns, design = values[kept].T, design_of(covariates[kept], "spearman")
    for first, second in ((0, 1), (1, 2)):
        reason = why_undefined(columns[first], columns[second], len(design), "spearman", design)
        if reason:
            return dict.fromkeys(PATHS, Estimate(len(design), null_reason=reason))
    one_each: Codes = np.arange(len(design), dtype=np.intp)
    pairs = [resampled_correlation(columns[i], columns[j], one_each, "spearman", design, settings) for i, j in _PAIRS]
    defined = [pair for pair in pairs if pair is not None]
    if len(defined) < len(pairs):
        return dict.fromkeys(PATHS, estimate(len(design), None, settings.confidence))
    point, samples, jackknife = (
        _paths(*(getattr(pair, part) for pair in defined)) for part in ("value", "samples", "jackknife")
    )
    found = {
        path: resampled(float(point[path]), samples[path], jackknife[path], inflation=taken_by(design))
        for path in PATHS
    }
    return {path: estimate(len(design), known, settings.confidence) for path, known in found.items()}


_PAIRS = ((0, 1), (0, 2), (1, 2))


def _paths(xm: Floats | float, xy: Floats | float, my: Floats | float) -> dict[str, Floats]:
    xm, xy, my = np.asarray(xm), np.asarray(xy), np.asarray(my)
    rest = np.where(1 - xm**2 > 1e-12, 1 - xm**2, np.nan)
    b, direct = (my - xm * xy) / rest, (xy - xm * my) / rest
    return dict(zip(PATHS, (xm, b, xm * b, direct, xy), strict=True))
