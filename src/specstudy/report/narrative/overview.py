"""The findings in sentences that the page and the terminal share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from specstudy.analysis.join import LEAST_DISTINCT_TRIGRAMS, Tables, frame_of, rows_of
from specstudy.analysis.measures import (
    ANSWER_ACCEPTANCE_MEASURE,
    ANSWER_MEASURES,
    CONTEXT_MEASURES,
    DRAFT_ENTROPY_MEASURE,
    ENTROPY_MEASURE,
    Key,
    condition_name,
    label,
    measures_in,
    phrase,
    short,
)
from specstudy.analysis.study import AnalysisResult
from specstudy.records import Claim
from specstudy.report.style import interval, number, percent
from specstudy.tables.manifest import failed_self_checks

VERDICTS = {
    "supported": "supported",
    "contradicted": "contradicted",
    "undecided": "not decided",
    "not_run": "not run",
}
SMALLER = "smaller than claimed"
FAILURES_NAMED = 5
_SPEED_TEST = {"kind": "median", "measure": "speedup"}


def summary_measures(result: AnalysisResult) -> dict[str, Key]:
    """Measures of the summary by their short names, those of the primary condition, as far as they were measured."""
    named = {short(m): result.key(m) for m in measures_in("summary")}
    return {words: key for words, key in named.items() if key in result.prompts and result.prompts[key].notna().any()}


def mean_row(result: AnalysisResult, measure: Key, category: str = "all") -> pd.Series | None:
    """The row of `by_category` for a measure, or None."""
    frame = result.by_category
    rows = frame[(frame["measure"] == measure) & (frame["category"] == category)]
    return rows.iloc[0] if len(rows) and rows.iloc[0]["value"] == rows.iloc[0]["value"] else None


def chain_sentence(result: AnalysisResult) -> str:
    """Which links of the chain hold."""
    links = {d.link: verdict_words(c) for d, c in zip(result.declarations, result.claims, strict=True) if d.link}
    told = []
    for words in _in_order(links.values()):
        named = [link for link, verdict in links.items() if verdict == words]
        told.append(f"{len(named)} {words} ({'; '.join(named)})")
    return f"Of the chain's {len(links)} links: {', '.join(told)}."


def claims_sentence(result: AnalysisResult) -> str:
    """How the claims came out, and what their intervals draw where that is not prompts."""
    n_prompts, n_groups = len(result.prompts), result.prompts["group"].nunique()
    drawn = f" Intervals draw {n_groups} groups, not {n_prompts} prompts." if n_groups < n_prompts else ""
    return f"Of {len(result.claims)} claims: {counts(result.claims)}.{drawn}"


def seen_sentence(result: AnalysisResult) -> str:
    """Which verdicts describe and which confirm; empty where every answered claim was declared before its data."""
    answered = [claim for claim in result.claims if claim.verdict != "not_run"]
    seen = [claim for claim in answered if not claim.is_confirmatory]
    if not seen:
        return ""
    return (
        f"{len(seen)} of the {len(answered)} claims answered were written after results on these prompts had been "
        "seen: there a verdict describes. prompts=confirm, which nobody had looked at, tests them."
    )


def counts(claims: Sequence[Claim]) -> str:
    """How many claims had each verdict."""
    told = [verdict_words(claim) for claim in claims]
    return ", ".join(f"{told.count(words)} {words}" for words in _in_order(told))


def _in_order(verdicts: Iterable[str]) -> list[str]:
    """Each verdict once, those that found something first."""
    found = set(verdicts)
    supported, contradicted, *others = VERDICTS.values()
    return [words for words in (supported, contradicted, SMALLER, *others) if words in found]


def verdict_words(claim: Claim) -> str:
    """A verdict for people. A contradicted claim whose whole interval lies within the margin has no effect of the
    opposite sign but one smaller than claimed."""
    ends = claim.ci_low, claim.ci_high
    within = all(end is not None and abs(end - claim.reference) < claim.margin for end in ends)
    is_smaller = claim.verdict == "contradicted" and claim.direction != "equivalent" and within
    return SMALLER if is_smaller else VERDICTS[claim.verdict]


def speed_sentence(result: AnalysisResult) -> str:
    """The primary condition's speedup, and what the claim on it says of it."""
    if result.primary is None:
        return "Speculative decoding was not measured."
    row = mean_row(result, result.at("speedup"))
    if row is None:
        return "The speed of speculative decoding was not measured."
    where = f"At {condition_name(result.primary, result.suffixes)}"
    bounds = interval(row["low"], row["high"])
    if not bounds:
        return f"{where} the median speedup is {number(row['value'])} over {row['n']} prompts (no interval)."
    return (
        f"{where} {_speed_reading(result)}: median speedup {number(row['value'])} "
        f"({percent(result.settings.confidence)} interval {bounds}, {row['n']} prompts){_by_steps(result)}."
    )


def _speed_reading(result: AnalysisResult) -> str:
    """What the claim that speculation is faster came to: one speed has one verdict."""
    claims = (c for d, c in zip(result.declarations, result.claims, strict=True) if d.test == _SPEED_TEST)
    claim = next(claims, None)
    if claim is None or claim.verdict not in ("supported", "contradicted"):
        return "it is not decided whether speculative decoding is faster than the verifier alone"
    if claim.verdict == "supported":
        return "speculative decoding is faster than the verifier alone"
    if claim.ci_high is not None and claim.ci_high < claim.reference:
        return "speculative decoding is slower than the verifier alone"
    return f"speculative decoding is not {claim.reference + claim.margin:g} times as fast as the verifier alone"


def _by_steps(result: AnalysisResult) -> str:
    row = mean_row(result, result.at("speedup_steps"))
    if row is None:
        return ""
    return f"; from step times {number(row['value'])} {interval(row['low'], row['high'])}".rstrip()


def reliability_sentence(result: AnalysisResult) -> str:
    """How repeatable the measures of an answer are; empty where no prompt has several answers."""
    rows = result.reliability[result.reliability["measure"].isin(ANSWER_MEASURES)].dropna(subset="value")
    if rows.empty:
        return ""
    told = ", ".join(f"{phrase(row.measure)} {number(row.value)} ({number(row.single)})" for row in rows_of(rows))
    return f"Reliability of the {answers_in_words(rows['answers'].iloc[0])} (of one answer): {told}."


def answers_in_words(answers: float) -> str:
    """What a reliability is of, by the number of answers a prompt."""
    return "one answer" if answers == 1 else f"mean over {answers:g} answers"


def repetitive_sentence(result: AnalysisResult) -> str:
    """How many of the verifier's answers repeat themselves, and what the links on one text are without them."""
    if not result.n_repetitive:
        return ""
    links = []
    for entropy in (ENTROPY_MEASURE, DRAFT_ENTROPY_MEASURE):
        found = result.find("prompt", "given_confounders_not_repetitive", entropy, ANSWER_ACCEPTANCE_MEASURE)
        if found and found.estimate is not None:
            links.append(f"{phrase(entropy)} {number(found.estimate)} {interval(found.ci_low, found.ci_high)}")
    without = (
        f" Without them, the adjusted links to acceptance on the same text are: {', '.join(links)}." if links else ""
    )
    share = f"under {LEAST_DISTINCT_TRIGRAMS:g} of their trigrams are distinct"
    return f"{result.n_repetitive} of the verifier's answers repeat themselves ({share}).{without}"


def constant_measures(result: AnalysisResult) -> list[str]:
    """A sentence for each context measure that does not vary, so that no correlation is defined."""
    sentences = []
    for x in CONTEXT_MEASURES:
        record = result.find("prompt", "all", x, ENTROPY_MEASURE)
        if record and record.null_reason and record.null_reason.startswith("x "):
            words = label(x)
            sentences.append(f"{words[0].upper()}{words[1:]} {record.null_reason[2:]}: no correlation is defined.")
    return sentences


def failures_sentence(tables: Tables) -> str:
    """How many prompts failed, and in which stages."""
    errors = frame_of(tables, "errors")
    if errors.empty:
        return "No prompt failed."
    stages = ", ".join(f"{n} in {stage}" for stage, n in errors["stage"].value_counts(sort=False).items())
    failed = list(dict.fromkeys(errors["prompt_id"].astype(str)))
    names = ", ".join(failed[:FAILURES_NAMED]) + (", ..." if len(failed) > FAILURES_NAMED else "")
    return (
        f"{len(failed)} {'prompt' if len(failed) == 1 else 'prompts'} failed ({stages}): {names}. "
        "Failed stages are excluded from every number."
    )


def alarm(manifest: Mapping[str, Any]) -> str:
    """What must be said before anything else; empty if every self-check passed."""
    failed = failed_self_checks(manifest)
    return f"SELF-CHECK FAILED in {', '.join(failed)}: do not trust this run's numbers." if failed else ""


def models_sentence(manifest: Mapping[str, Any]) -> str:
    """Which pair was measured on which prompts, as far as the manifest says."""
    config = manifest.get("config", {})
    models, prompts = config.get("models", {}), config.get("prompts", {})
    loaded = manifest.get("models", {})
    parts = []
    for role in ("verifier", "draft"):
        # What was loaded has a better name than what was asked for, and says what it is.
        name, note = (loaded.get(role, {}).get(key) for key in ("name", "note"))
        if shown := name or models.get(role):
            parts.append(f"{role} {shown}" + (f" ({note})" if note else ""))
    if prompts.get("name"):
        parts.append(f"prompts {prompts['name']}")
    return ", ".join(parts)
