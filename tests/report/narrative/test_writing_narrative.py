"""The sentences about attention while writing say what the rows hold, and nothing that they do not."""

from __future__ import annotations

from dataclasses import replace

from analysed import SMALL, analysed

from specstudy.records import AttentionLink
from specstudy.report.narrative.writing import gain_sentences, head_sentences, link_sentences

WRITING = analysed(replace(SMALL, heads=2))[0].writing


def sentence(measure: str = "sink_mass", **values: object) -> list[str]:
    """Of one link with verifier entropy alone."""
    row = next(
        r for r in WRITING.attention_links if (r.measure, r.layers, r.outcome) == (measure, "all", "entropy_bits")
    )
    told: AttentionLink = replace(row, **values)
    return [*link_sentences(replace(WRITING, attention_links=[told]))]


def test_the_direction_is_said_only_where_it_is_shown() -> None:
    shown = {"estimate": -0.28, "ci_low": -0.31, "ci_high": -0.24, "shifted": 0.01}
    (lower,) = sentence(**shown, p_adjusted=0.001)
    assert "lower verifier entropy" in lower
    assert "−0.28 [−0.31, −0.24]" in lower
    assert "0.01" in lower
    (higher,) = sentence(**{**shown, "estimate": 0.28}, p_adjusted=0.001)
    assert "higher verifier entropy" in higher
    (not_shown,) = sentence(**shown, p_adjusted=0.2)
    assert "not shown" in not_shown
    assert "lower" not in not_shown


def test_of_what_was_not_measured_and_of_what_nobody_claims_nothing_is_said() -> None:
    assert sentence(estimate=None) == []
    assert sentence("own_mass") == []


def test_gains_have_their_reason_or_their_share() -> None:
    row = replace(WRITING.attention_explained[-1], estimate=0.031, ci_low=0.02, ci_high=0.04, r2_held=0.4)
    (told,) = gain_sentences([row])
    assert "draft entropy" in told
    assert "0.031 [0.020, 0.040]" in told
    (unknown,) = gain_sentences([replace(row, estimate=None, null_reason="4 independent prompts")])
    assert "not known: 4 independent prompts" in unknown


def test_chosen_heads_are_told_with_the_prompts_that_tested_them() -> None:
    told = [*head_sentences(WRITING.attention_head_links)]
    assert len(told) == 4
    assert told[0].startswith("Layer 1, head 0, chosen")
    assert all("other 7 prompts" in one for one in told)
    row = next(row for row in WRITING.attention_head_links if row.chosen_by)
    (unknown,) = head_sentences([replace(row, estimate=None, ci_low=None, ci_high=None, null_reason="too few")])
    assert "(too few)" in unknown
