"""The effects of an intervention on one link, in sentences."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from specstudy.analysis.measures import phrase
from specstudy.records import LinkVerdict
from specstudy.report.style import interval, number

KINDS = {
    "unaltered": "unaltered",
    "clean": "needed sentences alone",
    "related": "related sentences added",
    "irrelevant": "irrelevant sentences added",
    "contradiction": "contradictions added",
    "shuffled": "needed sentences in another order",
    "scrambled": "words of needed sentences in random order",
    "repeated": "a filler repeated",
    "unmoved": "other passages behind the needed one",
    "moved": "the needed passage moved back",
    "hidden_random": "a random content position hidden from the verifier",
    "hidden_first": "position 0 hidden from the verifier",
    "hidden_boundary": "the prompt's last position hidden from the verifier",
    "hidden_random_from_both": "a random content position hidden from both models",
    "hidden_first_from_both": "position 0 hidden from both models",
    "hidden_boundary_from_both": "the prompt's last position hidden from both models",
    "content_lowered": "a random content key scored lower in the verifier",
    "structural_lowered": "the strongest structural key of each head scored lower in the verifier",
    "content_lowered_in_both": "a random content key scored lower in both models",
    "structural_lowered_in_both": "the strongest structural key of each head scored lower in both models",
    "temperature": "another temperature of both models",
    "temperature_of_verifier": "another temperature of the verifier alone",
}


def kind_words(kind: str, dose: int = 0) -> str:
    """A kind of version as the page names it, with its dose."""
    words = KINDS.get(kind, kind.replace("_", " "))
    return f"{words}, dose {dose}" if dose else words


def link_sentences(links: Iterable[LinkVerdict]) -> dict[str, list[str]]:
    """The sentences about each link of the chain, in the order of the rows."""
    told: dict[str, list[str]] = {}
    for row in links:
        told.setdefault(row.link, []).append(link_sentence(row))
    return told


def link_sentence(row: LinkVerdict) -> str:
    """What changed at both ends of the link, what the control did, and how that agrees with the claim."""
    words = kind_words(row.kind, row.dose)
    begun = f"{words[0].upper()}{words[1:]}"
    watched = phrase(row.watched)
    followed = f"{watched} changed {_change(row.watched_difference, row.watched_ci_low, row.watched_ci_high)}"
    if row.reading == "not_measured":
        return f"{begun}: not answered: {watched} was not measured on enough prompts."
    if row.moved:
        moved = _change(row.moved_difference, row.moved_ci_low, row.moved_ci_high)
        if row.reading == "not_moved":
            return f"{begun}: did not significantly change {phrase(row.moved)} ({moved}), so this link is not tested."
        begun = f"{begun}: changed {phrase(row.moved)} {moved};"
    else:
        begun = f"{begun}:"
    verdicts = {
        "as_claimed": f"{followed}, as claimed",
        "other_way": f"{followed}, opposite to the claim",
        "not_shown": f"{watched} did not significantly change ({_change(*_of_watched(row))})",
    }
    control = "" if row.control_difference is None else f"; the control changed it {_change(*_of_control(row))}"
    return f"{begun} {verdicts[row.reading]}{control} (n = {row.n} prompts)."


def mass_sentences(versions: pd.DataFrame) -> list[str]:
    """For each kind and dose of lowered keys the attention that these got before and after, mean over prompts."""
    lowered = versions[versions["mass_before"].notna().to_numpy(dtype=bool)]
    sentences = []
    for (kind, by), rows in lowered.groupby(["kind", "lowered_by"], sort=False):
        words = kind_words(str(kind))
        before, after = (float(rows[name].mean()) for name in ("mass_before", "mass_after"))
        sentences.append(
            f"{words[0].upper()}{words[1:]} by {by:g}: of the verifier's attention it got {before:.3f}, "
            f"then {after:.3f} (n = {len(rows)} prompts)."
        )
    return sentences


def _of_watched(row: LinkVerdict) -> tuple[float | None, float | None, float | None]:
    return row.watched_difference, row.watched_ci_low, row.watched_ci_high


def _of_control(row: LinkVerdict) -> tuple[float | None, float | None, float | None]:
    return row.control_difference, row.control_ci_low, row.control_ci_high


def _change(value: float | None, low: float | None, high: float | None) -> str:
    sign = "+" if value is not None and value > 0 else ""
    return f"by {sign}{number(value)} {interval(low, high)}".rstrip()
