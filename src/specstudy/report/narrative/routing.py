"""Experts used and their cost, in a sentence."""

from __future__ import annotations

from specstudy.analysis.study import AnalysisResult
from specstudy.report.style import number


def experts_sentence(result: AnalysisResult) -> str:
    """Distinct experts of a verifier pass against the baselines, and its cost; empty where no full pass was watched.

    At the primary gamma, or the largest one with a full pass.
    """
    if result.routing is None or not (costs := result.routing.costs(batch=1)):
        return ""
    wanted = result.primary.gamma if result.primary else None
    cost = next((row for row in costs if row.gamma == wanted), costs[-1])
    passes, answers = (
        next((row for row in result.routing.over_layers(source) if row.window == cost.gamma + 1), None)
        for source in ("verify", "decode")
    )
    assert passes is not None, "what a pass costs is told of passes that were watched"
    baselines = {
        "uniformly": passes.uniform,
        "independently by popularity": passes.independent,
        "in pairs as in the answers": answers.pairwise if answers else None,
    }
    would = ", ".join(f"{number(value)} if they chose {how}" for how, value in baselines.items() if value is not None)
    clock = "" if cost.estimate is None else f", by the clock {number(cost.estimate)}"
    return (
        f"At gamma {cost.gamma} a verifier pass uses {number(cost.distinct_pass)} of a layer's "
        f"{result.routing.layers.n_experts} experts, a single token {number(cost.distinct_one)}. Tokens would use "
        f"{would}. Target efficiency by bytes is {number(cost.by_bytes)}{clock}."
    )
