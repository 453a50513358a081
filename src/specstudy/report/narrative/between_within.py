"""The slopes of expected acceptance on entropy by level, a sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from specstudy.analysis.between_within import LEVELS
from specstudy.analysis.measures import phrase
from specstudy.records import BetweenWithinTerm
from specstudy.report.style import interval, number

WHERE = dict(zip(LEVELS, ("Within an answer", "Between the answers to one prompt", "Between prompts"), strict=True))


def level_sentences(rows: Iterable[BetweenWithinTerm]) -> Iterator[str]:
    """What a bit more of each entropy goes with at each level, alone and with the other entropy held constant; none
    where no level has a slope."""
    terms = {(row.predictor, row.held != "", row.level): row for row in rows}
    if all(row.estimate is None for row in terms.values()):
        return
    for (predictor, is_held, level), row in terms.items():
        if not is_held:
            yield f"{WHERE[level]}, {_told(phrase(predictor), row, terms[predictor, True, level])}."


def _told(entropy: str, row: BetweenWithinTerm, held: BetweenWithinTerm) -> str:
    if row.estimate is None:
        return f"{entropy} has no slope ({row.null_reason})"
    slope = f"a bit more of {entropy} goes with {_slope(row)} of acceptance ({number(row.standardised)} standardised)"
    return slope if held.estimate is None else f"{slope}, with the other entropy held constant with {_slope(held)}"


def _slope(row: BetweenWithinTerm) -> str:
    return f"{number(row.estimate, 3)} {interval(row.ci_low, row.ci_high, 3)}".strip()
