"""The strongest findings of a run, a sentence each, made from its numbers. What is told first stands first in SOURCES;
another kind of finding is one more entry there, another claim one more in BEST_KNOWN."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from specstudy.analysis.between_within import WITHIN_ANSWER
from specstudy.analysis.declarations import Declaration
from specstudy.analysis.measures import condition_name, is_timed, phrase
from specstudy.analysis.study import AnalysisResult
from specstudy.condition import Condition
from specstudy.records import BetweenWithinTerm, Claim
from specstudy.report.narrative.between_within import level_sentences
from specstudy.report.narrative.overview import verdict_words
from specstudy.report.narrative.routing import experts_sentence
from specstudy.report.style import interval, number

MOST = 5
MOST_OF_A_FAMILY = 2
WITHIN_CLAIM = "draft_entropy_and_expected_acceptance"
BEST_KNOWN = (
    "sink_mass_falls_with_entropy",
    "attention_adds_to_draft_entropy",
    "structured_accepted_more",
    "first_position_is_sink",
    "code_and_math_surer_than_prose",
    "commitment_points",
    "tokens_per_round_follow_from_alpha",
    "draft_entropy_separates",
    "acceptance_is_accepted_over_proposed",
    "entropy_bound_holds",
)
"""Claims that are told beside links and interventions, in this order, as far as they are decided."""

_ESTIMATES = {
    "correlation": "rank correlation",
    "ordering": "rank correlation",
    "attention_link": "rank correlation",
    "attention_gain": "gain",
    "token_mean": "mean",
    "paired": "difference",
    "version": "difference",
    "logistic": "log-odds",
    "predictor": "",
}
_SWEEPS = (  # the keys that vary, and the measures of which the first that was taken says what is best
    ({"gamma", "stop", "stop_threshold"}, ("speedup", "tokens_per_round")),
    ({"proposer"}, ("speedup", "tokens_per_round")),
    ({"temperature", "top_p"}, ("alpha_expected",)),
)


def findings(result: AnalysisResult, most: int = MOST) -> list[str]:
    """At most so many sentences, the strongest first; a run that sweeps something leads with the sweep's answer."""
    return [*islice((sentence for source in SOURCES for sentence in source(result)), most)]


def _sweeps(result: AnalysisResult) -> Iterator[str]:
    """Which of the conditions that differ in one thing is best, and which cannot be told from it."""
    if result.primary is None:
        return
    for keys, measures in _SWEEPS:
        swept = [c for c in result.suffixes if _differing(c, result.primary) <= keys]
        known = (m for m in measures if all(_value(result, c, m) is not None for c in swept))
        if len(swept) > 1 and (measure := next(known, None)):
            yield _best(result, sorted(swept), measure)


def _differing(one: Condition, other: Condition) -> set[str]:
    return {key for key, value in vars(one).items() if value != getattr(other, key)}


def _value(result: AnalysisResult, condition: Condition, measure: str) -> float | None:
    row = result.comparison.measures.get((condition, measure))
    return row.estimate if row else None


def _best(result: AnalysisResult, swept: list[Condition], measure: str) -> str:
    best = max(swept, key=lambda condition: _value(result, condition, measure) or 0.0)
    row = result.comparison.measures[best, measure]
    others = [condition for condition in swept if condition != best]
    alike = [condition_name(c, result.suffixes) for c in others if not _told_apart(result, c, best, measure)]
    if not alike:
        told = "told apart from every other"
    else:
        told = f"not told apart from {'any other' if len(alike) == len(others) else ', '.join(alike)}"
    busy = is_timed(measure) and any(result.machine.busy[condition] for condition in swept)
    return (
        f"Of {len(swept)} conditions, {condition_name(best, result.suffixes)} has the highest {phrase(measure)}: "
        f"{number(row.estimate)} {interval(row.ci_low, row.ci_high)}, {told}"
        f"{'; the machine was busy, so that this decides nothing' if busy else ''}."
    )


def _told_apart(result: AnalysisResult, one: Condition, other: Condition, measure: str) -> bool:
    """Whether the interval of their paired difference leaves out zero."""
    differences = result.comparison.differences
    row = differences.get((one, other, measure)) or differences.get((other, one, measure))
    return row is not None and row.ci_low is not None and row.ci_high is not None and not row.ci_low <= 0 <= row.ci_high


def _within_answers(result: AnalysisResult) -> Iterator[str]:
    """The entropy that tells more of acceptance from token to token, where a slope is shown; else the claim on it."""
    shown = [
        row for row in result.mechanism.between_within if row.level == WITHIN_ANSWER and not row.held and _shown(row)
    ]
    if not shown:
        yield from _claims(WITHIN_CLAIM)(result)
        return
    best = max(shown, key=lambda row: abs(row.standardised or 0.0))
    told = (best.level, best.predictor)
    yield from level_sentences(r for r in result.mechanism.between_within if (r.level, r.predictor) == told)


def _shown(row: BetweenWithinTerm) -> bool:
    return row.ci_low is not None and row.ci_high is not None and not row.ci_low <= 0 <= row.ci_high


def _claims_of(family: str) -> Callable[[AnalysisResult], Iterator[str]]:
    """The family's decided claims that are farthest from where their verdict turns."""

    def told(result: AnalysisResult) -> Iterator[str]:
        decided = [pair for pair in _decided(result) if pair[1].family == family]
        decided.sort(key=lambda pair: -_strength(*pair))
        yield from (claim_sentence(*pair) for pair in decided[:MOST_OF_A_FAMILY])

    return told


def _claims(*ids: str) -> Callable[[AnalysisResult], Iterator[str]]:
    """Those of these claims that are decided, in this order."""

    def told(result: AnalysisResult) -> Iterator[str]:
        decided = {claim.claim_id: (declared, claim) for declared, claim in _decided(result)}
        yield from (claim_sentence(*decided[name]) for name in ids if name in decided)

    return told


def _decided(result: AnalysisResult) -> list[tuple[Declaration, Claim]]:
    both = zip(result.declarations, result.claims, strict=True)
    return [pair for pair in both if pair[1].verdict in ("supported", "contradicted")]


def _strength(declared: Declaration, claim: Claim) -> float:
    """Distance of the estimate from where the verdict turns, in half-widths of its interval."""
    if claim.estimate is None or claim.ci_low is None or claim.ci_high is None:
        return 0.0
    nearest = min(abs(claim.estimate - boundary) for boundary in declared.boundaries)
    return nearest / max((claim.ci_high - claim.ci_low) / 2, 1e-12)


def claim_sentence(declared: Declaration, claim: Claim) -> str:
    """The verdict, what was claimed, and the number that decided."""
    kind = declared.test["kind"]
    estimate = f"{number(claim.estimate)} {interval(claim.ci_low, claim.ci_high)}".rstrip()
    what = f"{_ESTIMATES.get(kind, kind)} {estimate}".lstrip()
    verdict = verdict_words(claim)
    return f"{verdict[0].upper()}{verdict[1:]}: {claim.statement.rstrip('.')}: {what}, {claim.n} prompts."


def _experts(result: AnalysisResult) -> Iterator[str]:
    if sentence := experts_sentence(result):
        yield sentence


SOURCES: tuple[Callable[[AnalysisResult], Iterator[str]], ...] = (
    _sweeps,
    _experts,
    _claims_of("interventions"),
    _claims_of("sampling"),
    _claims_of("chain"),
    _within_answers,
    _claims(*BEST_KNOWN),
)
