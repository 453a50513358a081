"""What attention while writing goes with, a sentence each."""

from __future__ import annotations

from collections.abc import Iterator

from specstudy.analysis.measures import phrase
from specstudy.analysis.writing.explained import TOKEN_FED
from specstudy.analysis.writing.heads import BY_MASS
from specstudy.analysis.writing.study import WritingAnalysis
from specstudy.analysis.writing.tokens import FATE
from specstudy.records import AttentionExplained, AttentionHeadLink, AttentionLink
from specstudy.report.style import interval, number

_TOLD = (
    ("sink_mass", "all", "entropy_bits"),
    ("sink_mass", "last_third", "entropy_bits"),
    ("attention_entropy", "all", "entropy_bits"),
    ("lookback_ratio", "all", "entropy_bits"),
    ("sink_mass", "last_third", "expected_accept"),
    ("sink_mass", "last_third", FATE),
)
_SHOWN_BELOW_P = 0.05


def link_sentences(writing: WritingAnalysis) -> Iterator[str]:
    """Which way the links go that claims and the series speak of; of one that was not measured nothing."""
    rows = {(row.measure, row.layers, row.outcome): row for row in writing.attention_links}
    return (_link(rows[key]) for key in _TOLD if key in rows and rows[key].estimate is not None)


def _link(row: AttentionLink) -> str:
    """The estimate, and its null where attention is turned within the answer."""
    where = "" if row.layers == "all" else f" in the {row.layers.replace('_', ' ')} of the layers"
    told = f"{number(row.estimate)} {interval(row.ci_low, row.ci_high)}".strip()
    null = f"turned within the answer {number(row.shifted)}"
    x, y = f"{phrase(row.measure)}{where}", phrase(row.outcome)
    if row.estimate is None or row.p_adjusted is None or row.p_adjusted > _SHOWN_BELOW_P:
        return f"Token by token, {x} is not shown to go with {y}: {told} ({null})."
    return f"Token by token, the higher {x}, the {'higher' if row.estimate > 0 else 'lower'} {y}: {told} ({null})."


def gain_sentences(rows: list[AttentionExplained]) -> Iterator[str]:
    """What attention explains beyond what is held."""
    for row in rows:
        beyond = "the token fed" if row.held == TOKEN_FED else "draft entropy and the token fed"
        if row.estimate is None:
            yield f"What attention explains of {phrase(row.outcome)} beyond {beyond} is not known: {row.null_reason}."
        else:
            share = f"{number(row.estimate, 3)} {interval(row.ci_low, row.ci_high, 3)}".strip()
            yield (
                f"Beyond {beyond}, attention explains {share} of the variance of {phrase(row.outcome)} within answers, "
                f"on prompts that the fit has not seen; what is held explains {number(row.r2_held, 3)}."
            )


def head_sentences(rows: list[AttentionHeadLink]) -> Iterator[str]:
    """The heads that were chosen on every other prompt, on the rest."""
    for row in rows:
        if row.chosen_by:
            how = "most attention to the token before" if row.chosen_by == BY_MASS else "strongest correlation"
            told = f"{number(row.estimate)} {interval(row.ci_low, row.ci_high)}".strip()
            told += f" ({row.null_reason})" if row.null_reason else ""
            yield (
                f"Layer {row.layer}, head {row.head}, chosen on every other prompt for the {how}: "
                f"{phrase(row.measure)} with verifier entropy {told} on the other {row.n} prompts "
                f"({number(row.estimate_where_chosen)} where it was chosen)."
            )
