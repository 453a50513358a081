"""The head that was planted is chosen on some prompts and tested on the others."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from synthetic import Plan, make_tables

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.join import Tables
from specstudy.analysis.writing.heads import BY_LINK, BY_MASS, MEASURES, HeadLinks, attention_head_links
from specstudy.analysis.writing.tokens import written_tokens
from specstudy.tables.schema import to_table

SETTINGS = AnalysisSettings(bootstrap_samples=300)
PLAN = Plan(n_per_category=2, n_answer_tokens=60, repetitions=2, heads=3)


@pytest.fixture
def tables() -> Tables:
    return make_tables(PLAN)


def found(tables: Tables) -> HeadLinks:
    return attention_head_links(written_tokens(tables), tables, SETTINGS)


def test_the_map_has_every_head_and_the_planted_one_stands_out(tables: Tables) -> None:
    rows = found(tables).rows
    assert to_table("attention_head_links", rows).num_rows == len(MEASURES) * 6 + 4
    every = [row for row in rows if not row.chosen_by]
    assert {(row.measure, row.layer, row.head) for row in every} == {
        (m, i, h) for m in MEASURES for i in (0, 1) for h in range(3)
    }
    strong = [row for row in every if row.p_adjusted < 0.001]
    assert [(row.measure, row.layer, row.head) for row in strong] == [("sink_mass", 1, 0)]
    assert strong[0].ci_high < -0.3
    assert strong[0].n == 10


def test_a_head_is_chosen_on_other_prompts_than_it_is_tested_on(tables: Tables) -> None:
    """Turned round in the second, fourth, ... prompt, the planted head is chosen all the same, and found turned."""
    heads = tables["decode_attention_heads"]
    testing = heads["prompt_id"].isin(sorted(heads["prompt_id"].unique())[1::2])
    turned = [1 - values if odd else values for values, odd in zip(heads["sink_mass"], testing, strict=True)]
    result = found({**tables, "decode_attention_heads": heads.assign(sink_mass=turned)})
    row = next(row for row in result.rows if (row.measure, row.chosen_by) == ("sink_mass", BY_LINK))
    assert (row.layer, row.head, row.n) == (1, 0, 5)
    assert row.estimate_where_chosen < -0.3
    assert row.ci_low > 0.2
    assert result.chosen["sink_mass", BY_LINK].value == row.estimate


def test_by_mass_the_head_that_looks_most_at_the_token_before_is_taken(tables: Tables) -> None:
    heads = tables["decode_attention_heads"]
    looks = ((heads["layer"] == 0) & (heads["head"] == 2)).to_numpy()
    more = [
        values + np.float16(0.3) if own else values for values, own in zip(heads["previous_mass"], looks, strict=True)
    ]
    result = found({**tables, "decode_attention_heads": heads.assign(previous_mass=more)})
    row = next(row for row in result.rows if row.chosen_by == BY_MASS)
    assert (row.measure, row.layer, row.head) == ("previous_mass", 0, 2)


def test_by_mass_too_a_head_is_chosen_on_other_prompts_than_it_is_tested_on(tables: Tables) -> None:
    """One head looks most at the token before where heads are chosen, another, and more so, where they are tested."""
    heads = tables["decode_attention_heads"]
    testing = heads["prompt_id"].isin(sorted(heads["prompt_id"].unique())[1::2])
    place = heads["layer"] * 3 + heads["head"]
    more = np.select([~testing & (place == 2), testing & (place == 1)], [0.3, 0.6])
    masses = [values + np.float16(own) for values, own in zip(heads["previous_mass"], more, strict=True)]
    result = found({**tables, "decode_attention_heads": heads.assign(previous_mass=masses)})
    row = next(row for row in result.rows if row.chosen_by == BY_MASS)
    assert (row.layer, row.head) == (0, 2)


def test_groups_choose_or_test_whole(tables: Tables) -> None:
    ids = sorted(tables["decode_runs"]["prompt_id"].unique())
    groups = pd.DataFrame({"prompt_id": ids, "category": "code", "group": [f"g{i // 5}" for i in range(10)]})
    row = next(row for row in found({**tables, "prompts": groups}).rows if row.chosen_by == BY_LINK)
    assert row.n == 5
    assert row.ci_low is None  # one group alone tests


def test_attention_entropy_is_taken_over_what_it_could_be(tables: Tables) -> None:
    """Bits that rise with the keys as those of even attention do: the same share of the most at every step."""
    heads = tables["decode_attention_heads"]
    length = tables["decode_runs"].set_index(["prompt_id", "repetition"])["n_prompt_tokens"]
    keys = pd.MultiIndex.from_frame(heads[["prompt_id", "repetition"]])
    bits = [np.log2(n + np.arange(60)) for n in length[keys]]
    rows = found({**tables, "decode_attention_heads": heads.assign(attention_entropy_bits=bits)}).rows
    assert all(row.estimate is None for row in rows if row.measure == "attention_entropy")
    assert not any(row.chosen_by for row in rows if row.measure == "attention_entropy")


def test_without_heads_there_are_no_rows(tables: Tables) -> None:
    without = {name: frame for name, frame in tables.items() if name != "decode_attention_heads"}
    assert found(without) == HeadLinks([], {})
