"""The sentences about slopes by level say what the rows hold, and nothing that they do not."""

from __future__ import annotations

from specstudy.analysis.between_within import DRAFT, LEVELS, VERIFIER
from specstudy.records import BetweenWithinTerm
from specstudy.report.narrative.between_within import level_sentences


def term(predictor: str, held: str, level: str, estimate: float | None, reason: str | None = None) -> BetweenWithinTerm:
    ends = (None, None) if estimate is None else (estimate - 0.01, estimate + 0.01)
    return BetweenWithinTerm(
        predictor=predictor,
        held=held,
        level=level,
        n=100,
        n_prompts=20,
        estimate=estimate,
        ci_low=ends[0],
        ci_high=ends[1],
        standardised=estimate and 3 * estimate,
        p_value=None,
        p_adjusted=None,
        between_prompts_sd=None,
        between_answers_sd=None,
        residual_sd=None,
        null_reason=reason,
    )


def terms(estimate: float | None, reason: str | None = None) -> dict[tuple[str, str, str], BetweenWithinTerm]:
    models = ((VERIFIER, ""), (DRAFT, ""), (VERIFIER, DRAFT), (DRAFT, VERIFIER))
    keys = [(*model, level) for model in models for level in LEVELS]
    return {key: term(*key, estimate, reason) for key in keys}


def test_a_sentence_for_each_entropy_and_level():
    rows = terms(-0.1) | {(VERIFIER, DRAFT, LEVELS[0]): term(VERIFIER, DRAFT, LEVELS[0], 0.25)}
    told = [*level_sentences(rows.values())]
    assert len(told) == 6
    assert all("−0.100 [−0.110, −0.090]" in sentence and "−0.30 standardised" in sentence for sentence in told)
    assert "0.250 [0.240, 0.260]" in told[0]


def test_a_level_without_a_slope_gives_its_reason_and_none_at_all_is_passed_over():
    key = (DRAFT, "", LEVELS[1])
    told = [*level_sentences((terms(-0.1) | {key: term(*key, None, "one answer")}).values())]
    assert [sentence for sentence in told if "one answer" in sentence] == [told[4]]
    assert not [*level_sentences(terms(None, "no token").values())]
