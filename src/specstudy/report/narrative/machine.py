"""How quiet the machine was while speeds were measured, in sentences."""

from __future__ import annotations

from specstudy.analysis.measures import condition_name
from specstudy.analysis.study import AnalysisResult
from specstudy.report.style import number

AGAIN = "execution.remeasure=busy times again what was disturbed, on a quieter machine."


def machine_sentences(result: AnalysisResult) -> list[str]:
    """What a reader of the speeds must know of the machine; nothing where it was quiet and all was timed at once."""
    return [sentence for sentence in (_busy(result), _sittings(result)) if sentence]


def load_sentence(result: AnalysisResult) -> str:
    """Under which load speeds were timed; empty where none was."""
    sittings = result.machine.sittings
    if sittings.empty:
        return ""
    load, threads = sittings["load_average"].median(), sittings["threads"].median()
    in_use = f"{threads:g} {'thread' if threads == 1 else 'threads'}"
    return f"Speeds were timed at a median load of {number(load, 1)}, with {in_use} in use."


def _busy(result: AnalysisResult) -> str:
    busy = result.machine.busy
    if result.primary and (why := busy[result.primary]):
        return f"The machine was busy while speeds were timed: {why}. Speed claims are not decided; {AGAIN}"
    others = [condition_name(condition, result.suffixes) for condition, why in busy.items() if why]
    return f"The machine was busy while these were timed: {'; '.join(others)}. {AGAIN}" if others else ""


def _sittings(result: AnalysisResult) -> str:
    """When and under which load, if not all at one time."""
    if result.machine.n_sittings < 2:
        return ""
    told = [
        f"from {str(own['begun'].min())[:16].replace('T', ' ')} (load {number(own['load_average'].median(), 1)}, "
        f"{number(1000 * own['verifier_step_s'].median(), 1)} ms a step of the verifier)"
        for _, own in result.machine.sittings.groupby("sitting")
    ]
    return (
        f"Speeds were timed at {len(told)} times, {'; '.join(told)}: what another time shows may be the machine's. "
        "execution.remeasure=all times everything at once."
    )
