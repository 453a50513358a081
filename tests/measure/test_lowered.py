"""Which keys a version lowers, in which models, and the attention that is measured to have been taken from them."""

from __future__ import annotations

import attention_models
import numpy as np
import pytest
import torch
from tiny import uncached_logits
from tiny_study import tiny_pair

from specstudy.measure.altered import altered
from specstudy.measure.decode import GenerationSettings, generate, measure_decode
from specstudy.measure.lowered import lowered_models, lowered_positions, measure_lowered
from specstudy.measure.sampling import Warp
from specstudy.measure.sinks import prefill_sums
from specstudy.measure.speculation_records import SpeculationSettings, make_proposer
from specstudy.measure.speculative import SpeculativeLoop
from specstudy.models.load import Pair
from specstudy.models.lowered_scores import lowered_scores
from specstudy.prompts import Prompt, RenderedPrompt, render
from specstudy.prompts.versions import with_lowered_keys

NEW_TOKENS = 12
GREEDY = GenerationSettings(Warp(0.0, 1.0), NEW_TOKENS, (), 3)
SAMPLED = GenerationSettings(Warp(1.0, 1.0), NEW_TOKENS, (), 3)
BY = 4.0
KINDS = [f"{key}_lowered{whom}1" for key in ("structural", "content") for whom in ("", "_in_both")]


@pytest.fixture(scope="module")
def pair() -> Pair:
    return tiny_pair()


def versions(pair: Pair, prompt_id: str = "p") -> dict[str, RenderedPrompt]:
    made = with_lowered_keys([Prompt(prompt_id, "own", "Say one.")], (BY,))
    return {p.version.name: render(p, pair.tokenizer) for p in made if p.version}


def test_the_strongest_structural_key_of_each_head_is_that_of_eager_maps(pair: Pair) -> None:
    rendered = versions(pair)["structural_lowered_in_both1"]
    structural = np.flatnonzero([position.is_structural for position in rendered.positions])
    everywhere = []
    for model in (pair.verifier, pair.draft):
        paid = attention_models.eager_maps(model, rendered.token_ids).sum(2)
        found = lowered_positions(model, rendered, 0)
        assert found.tolist() == structural[paid[:, :, structural].argmax(-1)].tolist()
        assert len(found.unique()) > 1, "heads differ"
        everywhere.append(found.tolist() == paid.argmax(-1).tolist())
    assert not all(everywhere), "some head attends to content most"


def test_a_control_lowers_one_content_key_of_the_prompt_drawn_by_the_seed(pair: Pair) -> None:
    named = versions(pair)
    drawn = {
        int(lowered_positions(model, named[name], 0))
        for name in ("content_lowered1", "content_lowered_in_both1")
        for model in (pair.verifier, pair.draft)
    }
    assert len(drawn) == 1
    assert not named["unaltered"].positions[drawn.pop()].is_structural
    others = [versions(pair, str(i))["content_lowered1"] for i in range(12)]
    assert len({int(lowered_positions(pair.verifier, rendered, 0)) for rendered in others}) > 3
    empty = render(with_lowered_keys([Prompt("p", "own", "")], (BY,))[1], pair.tokenizer)
    with pytest.raises(ValueError, match="no content position"):
        lowered_positions(pair.verifier, empty, 0)


@pytest.mark.parametrize("name", KINDS)
def test_both_loops_write_what_the_altered_verifier_writes_and_the_draft_is_as_the_version_says(
    pair: Pair, name: str
) -> None:
    rendered = versions(pair)[name]
    plain = [uncached_logits(model, rendered.token_ids) for model in (pair.verifier, pair.draft)]
    with lowered_scores(pair.verifier.module, lowered_positions(pair.verifier, rendered, 0), BY):
        ids = list(rendered.token_ids)
        for _ in range(NEW_TOKENS):
            ids.append(int(uncached_logits(pair.verifier, ids)[-1].argmax()))
    expected = ids[len(rendered.token_ids) :]
    how = SpeculationSettings(GREEDY, 3, "model", "none", None)
    with altered(pair, rendered, 0):
        assert generate(pair.verifier, rendered.token_ids, GREEDY, np.random.default_rng(0)).token_ids == expected
        proposer = make_proposer(pair, how)
        loop = SpeculativeLoop(pair.verifier, proposer, rendered.token_ids, GREEDY, 3, np.random.default_rng(0))
        assert loop.run().token_ids == expected
        seen = [uncached_logits(model, rendered.token_ids) for model in (pair.verifier, pair.draft)]
    assert (seen[0] - plain[0]).abs().max() > 1e-2
    assert torch.equal(seen[1], plain[1]) == ("in_both" not in name)
    after = [uncached_logits(model, rendered.token_ids) for model in (pair.verifier, pair.draft)]
    assert all(torch.equal(a, b) for a, b in zip(plain, after, strict=True))


@pytest.mark.parametrize("name", KINDS)
def test_the_mass_that_moved_is_that_of_uncached_passes(pair: Pair, name: str) -> None:
    rendered = versions(pair)[name]
    rngs = [np.random.default_rng(i) for i in range(2)]
    with altered(pair, rendered, 0):
        decoded = measure_decode(pair, rendered, SAMPLED, rngs)["decode_tokens"]
    rows = measure_lowered(pair, rendered, decoded, 0)
    assert [row.model for row in rows] == (["verifier", "draft"] if "in_both" in name else ["verifier"])
    for row, model in zip(rows, lowered_models(pair, rendered).values(), strict=True):
        positions = lowered_positions(model, rendered, 0).expand(model.dimensions.n_layers, 4)
        assert row.first_position_share == pytest.approx(float((positions == 0).double().mean()))
        masses = []
        for repetition in range(2):
            ids = [*rendered.token_ids, *(t.token_id for t in decoded if t.repetition == repetition)]
            maps = torch.tensor(attention_models.eager_maps(model, ids))
            with lowered_scores(model.module, positions, BY):
                sums = prefill_sums(model, ids, 1, first_query=len(rendered.token_ids)).column_sums.double()
            plain = maps[:, :, -NEW_TOKENS:].sum(2)
            masses.append([float(paid.gather(-1, positions[..., None]).mean() / NEW_TOKENS) for paid in (plain, sums)])
        before, after = np.mean(masses, axis=0)
        assert row.mass_before == pytest.approx(before, rel=1e-4)
        assert row.mass_after == pytest.approx(after, rel=1e-4)
        assert 0 < row.mass_after < row.mass_before / 3


def test_a_version_that_lowers_nothing_has_no_rows(pair: Pair) -> None:
    assert measure_lowered(pair, versions(pair)["unaltered"], [], 0) == []
