"""Drafting by copying from the context and by the verifier's first layers: exact, and what they propose."""

import numpy as np
import pytest
import tiny
import torch

from specstudy import formulas
from specstudy.errors import UserError
from specstudy.measure.decode import GenerationSettings, generate
from specstudy.measure.prompt_lookup import PromptLookup, continuation
from specstudy.measure.proposers import ModelProposer
from specstudy.measure.sampling import Warp
from specstudy.measure.speculative import SpeculativeLoop
from specstudy.models.early_exit import first_layers, refuse_unless_it_has_more_layers
from specstudy.models.sources import find_source

PROMPT = [3, 5, 7, 11, 2, 40, 3, 5]
CONFIGURATIONS = tiny.configurations()


@pytest.mark.parametrize(
    ("text", "n", "longest", "found"),
    [
        ([1, 2, 3, 9, 1, 2], 2, 3, [3, 9]),
        ([1, 2, 3, 9, 1, 2], 5, 3, [3, 9, 1, 2]),
        ([1, 2, 7, 1, 2, 8, 1, 2], 1, 3, [8]),
        ([5, 1, 2, 7, 4, 2, 8, 1, 2], 1, 2, [7]),
        ([5, 1, 2, 7, 4, 2, 8, 1, 2], 1, 1, [8]),
        ([1, 2, 3], 4, 3, []),
        ([1], 4, 3, []),
        ([6, 6, 6], 2, 2, [6]),
    ],
)
def test_the_latest_longest_match_is_continued(text, n, longest, found):
    assert continuation(text, n, longest) == found


def greedy(verifier, proposer, n=30):
    settings = GenerationSettings(Warp(0.0, 1.0), n, (), 3)
    plain = generate(verifier, PROMPT, settings, np.random.default_rng(0)).token_ids
    loop = SpeculativeLoop(verifier, proposer, PROMPT, settings, 4, np.random.default_rng(0))
    return loop.run(), plain


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_copying_is_exact(name):
    verifier = tiny.language_model(CONFIGURATIONS[name], seed=1)
    generation, plain = greedy(verifier, PromptLookup(tiny.VOCABULARY, 3))
    assert generation.token_ids == plain
    assert any(r.n_proposed for r in generation.rounds)
    assert any(not r.n_proposed for r in generation.rounds) or generation.rounds[0].n_proposed


@pytest.mark.parametrize("name", [n for n in CONFIGURATIONS if n != "learned positions"])
def test_the_first_layers_are_exact_and_cost_what_they_should(name):
    verifier = tiny.language_model(CONFIGURATIONS[name], seed=1)
    draft = first_layers(verifier, 2)
    generation, plain = greedy(verifier, ModelProposer(draft))
    assert generation.token_ids == plain
    layer = formulas.flops_per_token(verifier.dimensions) - formulas.flops_per_token(draft.dimensions)
    head = 2.0 * verifier.dimensions.hidden_size * verifier.dimensions.output_rows
    assert formulas.flops_per_token(draft.dimensions) == pytest.approx(2 * layer + head)


def test_the_first_layers_share_every_weight_and_give_the_logits_of_those_layers():
    verifier = tiny.llama(1)
    draft = first_layers(verifier, 2)
    theirs = {p.data_ptr() for p in verifier.module.parameters()}
    assert {p.data_ptr() for p in draft.module.parameters()} <= theirs
    hidden = verifier.module(input_ids=torch.tensor([PROMPT]), output_hidden_states=True).hidden_states[2]
    expected = verifier.module.lm_head(verifier.module.model.norm(hidden))[0]
    torch.testing.assert_close(tiny.uncached_logits(draft, PROMPT), expected)


def test_early_exit_says_what_it_cannot_do():
    with pytest.raises(UserError, match="fewer than the 3 layers"):
        first_layers(tiny.llama(1), 3)
    with pytest.raises(UserError, match="does not know where"):
        first_layers(tiny.language_model(CONFIGURATIONS["learned positions"]), 1)


def test_early_exit_says_so_before_any_weights_load(tmp_path):
    for name, config in (("layered", CONFIGURATIONS["llama"]), ("other", CONFIGURATIONS["learned positions"])):
        config.save_pretrained(tmp_path / name)
    layered, other = (find_source(str(tmp_path / name), "models.verifier") for name in ("layered", "other"))
    refuse_unless_it_has_more_layers(layered, 2)
    with pytest.raises(UserError, match="exit_layers=3 must be fewer"):
        refuse_unless_it_has_more_layers(layered, 3)
    with pytest.raises(UserError, match="does not know where"):
        refuse_unless_it_has_more_layers(other, 1)
