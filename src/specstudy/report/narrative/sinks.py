"""Findings on sinks and context health."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from specstudy.analysis.measures import label
from specstudy.analysis.sinks import boundary, first_token, heads, length, prediction, roles, thresholds, tokens
from specstudy.analysis.sinks.positions import ATTENTION_OF, BOUNDARY, FIRST, Z_MEASURES
from specstudy.analysis.sinks.study import SinkAnalysis
from specstudy.analysis.study import AnalysisResult
from specstudy.records import SinkRole
from specstudy.report.style import interval, number, visible_token

MEASURE_WORDS = {z_score: label(attention) for z_score, attention in ATTENTION_OF.items()}
PREDICTOR_WORDS = {
    prediction.RECEIVED: label(prediction.RECEIVED),
    prediction.WINDOW: label(prediction.WINDOW),
    prediction.WINDOW_GAIN: "difference",
    prediction.POSITION: "position alone",
}
POSITION_WORDS = {
    "content": "content",
    "content_before_window": "content before the window",
    "all": "all positions",
    "all_before_window": "all positions before the window",
}


def findings(result: AnalysisResult) -> list[str]:
    """A sentence or two for each question of the chapter that this run can answer; the primary measure first."""
    ask: tuple[Callable[[SinkAnalysis, float], str], ...] = (
        _soft_health,
        _series_health,
        _raised,
        _first_position,
        _first_token,
        _boundary,
        _boundary_by_position,
        _prediction,
        _content_tokens,
        _sink_rate,
        _recommended,
    )
    sentences = (question(result.sinks, result.settings.sink_threshold) for question in ask)
    return [sentence for sentence in sentences if sentence]


def role_words(role: SinkRole) -> str:
    """A part of the template as the chapter calls it."""
    if role.place == FIRST:
        return "position 0"
    name = role.structural_role.replace("_", " ").replace("+", " +")
    if role.structural_role == roles.WHOLE_PLACE:
        return "the boundary as a whole"
    return f"{name} (boundary)" if role.place == BOUNDARY and "generation" not in name else name


def estimate_words(value: float, low: float | None, high: float | None, digits: int = 2) -> str:
    """A number and, if it has one, its interval."""
    return f"{number(value, digits)} {interval(low, high, digits)}".strip()


def _soft_health(sinks: SinkAnalysis, threshold: float) -> str:
    spread = _distribution(sinks, "context_health_soft")
    if spread is None or spread.median is None:
        return ""
    name = _capital(label("context_health_soft"))
    text = f"{name}, the primary measure, {_range(spread)}"
    if spread.degenerate:
        return f"{text}; it {spread.degenerate}, so no correlation is defined."
    quantities = (length.OBSERVED, length.EXPECTED, length.BEYOND)
    observed, by_place, beyond = (sinks.answer(q, length.MEASURE) for q in quantities)
    if observed.estimate is None or by_place.estimate is None or beyond.estimate is None:
        return f"{text}."
    if beyond.ci_low is None or beyond.ci_high is None or beyond.ci_low <= 0 <= beyond.ci_high:
        told = "no effect of length beyond that of place is shown"
    else:
        told = (
            f"beyond what place makes of it, {'longer' if beyond.ci_high < 0 else 'shorter'} prompts have a lower score"
        )
    return (
        f"{text}. Its rank correlation with the number of positions is {_estimate(observed)}; attention drawn from all "
        f"prompts at the same distance from the end gives {_estimate(by_place)}. Minus what their places give: "
        f"{_estimate(beyond)}: {told}."
    )


def _range(spread: Any) -> str:
    return f"ranges from {number(spread.minimum)} to {number(spread.maximum)} (median {number(spread.median)})"


def _series_health(sinks: SinkAnalysis, threshold: float) -> str:
    """The score of mayankpallai 2026 at the run's threshold: how often it is 10, and how far it jumps."""
    sentences = []
    for name in ("context_health", "context_health_window"):
        spread = _distribution(sinks, name)
        if spread is None or spread.median is None or spread.minimum is None:
            continue
        at_ten = spread.share_at_commonest or 0.0
        values = "one value" if spread.n_distinct == 1 else f"{spread.n_distinct} different values"
        told = f"{_capital(label(name))} takes {values} over {spread.n_prompts} prompts"
        told += f" ({at_ten:.0%} at the mode, smallest {number(spread.minimum)})".replace("%", " %")
        told += f"; it {spread.degenerate}, so no correlation is defined" if spread.degenerate else ""
        sentences.append(told + ".")
    if sentences and threshold >= 5:
        sentences.append("At a threshold of 5 or more it falls from 10 to at most 5 with the first content sink.")
    return " ".join(sentences)


def _raised(sinks: SinkAnalysis, threshold: float) -> str:
    shares = [r.share_raised for r in sinks.health_thresholds if r.share_raised is not None]
    if not shares:
        return ""
    low, high = (f"{100 * share:.0f} %" for share in (min(shares), max(shares)))
    return (
        "Under a threshold of 5, counting the next weaker content position as a sink raises the score "
        f"in {low if low == high else f'{low} to {high}'} of the prompts that have a content sink."
    )


def _first_position(sinks: SinkAnalysis, threshold: float) -> str:
    rows = [r for r in sinks.sink_roles if r.place == FIRST and r.mean_z is not None and r.incidence is not None]
    parts = [
        f"{MEASURE_WORDS[measure]}: a sink in {100 * n_sinks / n:.0f} % of prompts, mean z {number(total / n, 1)}"
        for measure in Z_MEASURES
        for n, n_sinks, total in [_pooled([r for r in rows if r.measure == measure])]
        if n
    ]
    return f"Position 0 at threshold {threshold:g}. {_capital('; '.join(parts))}." if parts else ""


def _pooled(rows: Sequence[SinkRole]) -> tuple[int, float, float]:
    """Positions, sinks and sum of z over roles that position 0 plays in different prompts."""
    n = sum(r.n_positions for r in rows)
    return n, sum(r.n_positions * (r.incidence or 0) for r in rows), sum(r.n_positions * (r.mean_z or 0) for r in rows)


_VERDICTS = {True: "yes", False: "no", None: "not decided"}


def _boundary(sinks: SinkAnalysis, threshold: float) -> str:
    """Whether the template tokens at the boundary are a second sink: each measure's answer, and whether they agree."""
    rows = [r for r in sinks.sink_roles if r.place == BOUNDARY and r.structural_role == roles.WHOLE_PLACE]
    if not rows:
        return ""
    parts, verdicts = [], {}
    for row in rows:
        words, gain = MEASURE_WORDS[row.measure], sinks.answer(boundary.BOUNDARY_GAIN, row.measure)
        if row.mean_z is None or gain.estimate is None:
            parts.append(f"{words}: undefined ({row.null_reason or gain.null_reason})")
            continue
        verdicts[words] = _over(boundary.SINK_GAIN, gain)
        z = estimate_words(row.mean_z, row.mean_z_ci_low, row.mean_z_ci_high)
        parts.append(f"{words}: {_VERDICTS[verdicts[words]]} ({_estimate(gain)}; against all content mean z {z})")
    return (
        "Are the template tokens at the generation boundary a second sink (interval of their z minus that of the last "
        f"{boundary.N_LAST_CONTENT} content tokens over {boundary.SINK_GAIN:g})? {_capital('; '.join(parts))}. "
        f"{_agreement(verdicts)}"
    )


def _over(level: float, row: Any) -> bool | None:
    if row.ci_low is None or row.ci_high is None:
        return None
    return True if row.ci_low > level else False if row.ci_high < level else None


def _agreement(verdicts: dict[str, bool | None]) -> str:
    decided = {words: verdict for words, verdict in verdicts.items() if verdict is not None}
    if len(decided) < 2:
        return "Fewer than two measures decide."
    if len(set(decided.values())) == 1:
        return f"{_capital(_listed(decided))} agree."
    for_it, against = ([w for w, verdict in decided.items() if verdict is said] for said in (True, False))
    return f"The measures disagree: {_listed(for_it)} says yes, {_listed(against)} says no."


def _boundary_by_position(sinks: SinkAnalysis, threshold: float) -> str:
    """Which tokens of the run each measure takes for a mild sink."""
    rows = [r for r in sinks.sink_roles if r.place == BOUNDARY and r.structural_role != roles.WHOLE_PLACE]
    found = {
        measure: [role_words(r) for r in rows if r.measure == measure and r.is_mild_sink]
        for measure in Z_MEASURES
        if any(r.measure == measure and r.mean_z_ci_low is not None for r in rows)
    }
    if not found:
        return ""
    parts = [f"by {MEASURE_WORDS[m]} {_listed(names) or 'none of them'}" for m, names in found.items()]
    common = [name for name in next(iter(found.values())) if all(name in names for names in found.values())]
    agreed = f" All agree on {_listed(common)}." if len(found) > 1 and common else ""
    return f"Boundary tokens whose interval of the mean z is over {roles.MILD_SINK_Z:g}: {'; '.join(parts)}.{agreed}"


def _first_token(sinks: SinkAnalysis, threshold: float) -> str:
    """Whether attention to position 0 falls with length as more keys alone would have it."""
    found, diluted = (sinks.answer(q, "first_token_attention") for q in (first_token.SLOPE, first_token.DILUTED_SLOPE))
    if found.ci_low is None or diluted.estimate is None:
        return ""
    gains = _over(diluted.estimate, found)
    told = {True: "gains on", False: "loses to", None: "neither gains on nor loses to"}[gains]
    return (
        "The logit of attention from the last prompt positions to position 0 changes with ln of the prompt's tokens by "
        f"{_estimate(found)}. Dilution by more keys makes −1 of a head and {number(diluted.estimate)} of the mean over "
        f"heads: with length the first token {told} the average other key."
    )


def _prediction(sinks: SinkAnalysis, threshold: float) -> str:
    wanted = ("content_before_window", prediction.NOTHING)
    rows = {r.predictor: r for r in sinks.sink_predictions if (r.positions, r.held_constant) == wanted}
    received, window, gain = (rows[name] for name in (prediction.RECEIVED, prediction.WINDOW, prediction.WINDOW_GAIN))
    if received.estimate is None or window.estimate is None or gain.estimate is None:
        return ""
    if gain.ci_low is None or gain.ci_high is None:
        told = "no interval"
    elif gain.ci_low > 0:
        told = "the window predicts better"
    else:
        told = "the window predicts worse" if gain.ci_high < 0 else "not significant"
    return (
        "Predicting the answer's attention over content before the window: mean rank correlation within prompts "
        f"{_estimate(received)} for {MEASURE_WORDS['z_score']}, {_estimate(window)} for {MEASURE_WORDS['z_window']} "
        f"(difference {_estimate(gain)}: {told})."
    )


def _content_tokens(sinks: SinkAnalysis, threshold: float) -> str:
    """The token that is most often a content sink at the lower threshold, and whether it is one elsewhere."""
    wanted = ("z_score", tokens.LOWER_THRESHOLD)
    rows = [r for r in sinks.sink_tokens if (r.measure, r.threshold) == wanted]
    if not rows:
        return ""
    shares = {r.quantity: r for r in sinks.sink_recurrence if (r.measure, r.threshold) == wanted}
    top = rows[0]
    later = top.share_later_occurrences
    text = (
        f"Over z {tokens.LOWER_THRESHOLD:g} ({MEASURE_WORDS['z_score']}) the most frequent content sink is "
        f"“{visible_token(top.token)}”: {top.n_sinks} of {top.n_occurrences} occurrences, "
        f"in {top.n_prompts_as_sink} of {top.n_prompts} prompts; "
        f"{100 * top.share_first_occurrence:.0f} % of its first occurrences in a prompt"
    )
    text += "." if later is None else f" and {100 * later:.0f} % of its later ones."
    pairs = ((tokens.SAME_PROMPT, tokens.BASE_POSITIONS), (tokens.OTHER_PROMPTS, tokens.BASE_TOKENS))
    words = ("elsewhere in its prompt", "in another prompt that holds it")
    told = []
    for where, (again, base) in zip(words, pairs, strict=True):
        share, of_all = shares[again].estimate, shares[base].estimate
        if share is not None and of_all is not None:
            told.append(f"{where} in {100 * share:.0f} % of cases ({100 * of_all:.1f} % of all)")
    return f"{text} The token of a content sink is a sink {', '.join(told)}." if told else text


def _sink_rate(sinks: SinkAnalysis, threshold: float) -> str:
    parts = []
    for measure in Z_MEASURES:
        answer = sinks.answer(heads.SINK_RATE_AGREEMENT, measure)
        held = sinks.answer(heads.SINK_RATE_AGREEMENT_GIVEN_LENGTH, measure)
        if answer.estimate is None:
            parts.append(f"{MEASURE_WORDS[measure]}: none ({answer.null_reason})")
        else:
            given = f", {_estimate(held)} given length" if held.estimate is not None else ""
            parts.append(f"{MEASURE_WORDS[measure]}: {_estimate(answer)}{given}")
    return f"Rank correlation over prompts of the sink rate with the z-score of position 0: {'; '.join(parts)}."


def _recommended(sinks: SinkAnalysis, threshold: float) -> str:
    parts = []
    for measure in thresholds.SWEPT_MEASURES:
        answer = sinks.answer(thresholds.RECOMMENDED, measure)
        told = f"none ({answer.null_reason})" if answer.estimate is None else _estimate(answer)
        parts.append(f"{told} for {MEASURE_WORDS[measure]}")
    allowed = f"{100 * thresholds.FLAGGED_CONTENT_ALLOWED:g} %"
    return (
        f"The smallest swept threshold that flags at most {allowed} of content positions: {'; '.join(parts)}. "
        f"The run used {threshold:g}."
    )


def _distribution(sinks: SinkAnalysis, measure: str) -> Any:
    return next((row for row in sinks.context_distributions if row.measure == measure), None)


def _estimate(row: Any) -> str:
    return estimate_words(row.estimate, row.ci_low, row.ci_high)


def _listed(names: Iterable[str]) -> str:
    *others, last = [*names] or [""]
    return f"{', '.join(others)} and {last}" if others else last


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
