"""Logits that are not finite stop a prompt in every stage, naming model, precision, layer and what helps."""

from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch

from specstudy.errors import UserError
from specstudy.measure.decode import GenerationSettings, generate
from specstudy.measure.finite import NotFiniteError, refuse_unless_finite
from specstudy.measure.prompt_lookup import PromptLookup
from specstudy.measure.proposers import ModelProposer
from specstudy.measure.sampling import Warp
from specstudy.measure.sinks import describe_attention, negative_log2_likelihoods
from specstudy.measure.speculative import SpeculativeLoop
from specstudy.measure.teacher_forced import teacher_forced
from specstudy.models.load import Pair

PROMPT = [3, 5, 7, 11, 2, 40]
SETTINGS = GenerationSettings(Warp(0.7, 0.9), 5, ())
PLACES = {
    "the embeddings": "model.embed_tokens.weight",
    "layer 0 of 3": "model.layers.0.mlp.up_proj.weight",
    "layer 2 of 3": "model.norm.weight",
    None: "lm_head.weight",
}


def spoilt(parameter="model.norm.weight", value=torch.nan, dtype=torch.float32):
    model = replace(tiny.llama(1, tie_word_embeddings=False), name="spoilt")
    with torch.no_grad():
        model.module.get_parameter(parameter)[3] = value
    model.module.to(dtype)
    return model


def speculate(verifier, proposer):
    SpeculativeLoop(verifier, proposer, PROMPT, SETTINGS, 3, np.random.default_rng(0)).run()


STAGES = {
    "prefill": lambda bad, good: negative_log2_likelihoods(bad, PROMPT),
    "decode": lambda bad, good: generate(bad, PROMPT, SETTINGS, np.random.default_rng(0)),
    "the draft over the text": lambda bad, good: teacher_forced(
        Pair(good, bad, None, ()), PROMPT, [1, 2], Warp(0.7, 0.9)
    ),
    "a round's verifier": lambda bad, good: speculate(bad, ModelProposer(good)),
    "a round's draft": lambda bad, good: speculate(good, ModelProposer(bad)),
    "copied drafts": lambda bad, good: speculate(bad, PromptLookup(tiny.VOCABULARY, 3)),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_every_stage_names_the_model(stage, value):
    with pytest.raises(NotFiniteError, match=r"^spoilt gave NaN or infinite logits in float32, first in layer 2 of 3$"):
        STAGES[stage](spoilt(value=value), tiny.llama(2))


@pytest.mark.parametrize("place", PLACES)
def test_the_first_layer_is_named(place):
    wanted = f", first in {place}$" if place else "float32$"
    # Token 3 is in the prompt, so that its embedding is used.
    with pytest.raises(NotFiniteError, match=wanted):
        generate(spoilt(PLACES[place]), PROMPT, SETTINGS, np.random.default_rng(0))


def test_half_precision_is_told_what_has_the_range():
    # A weight that float16 still holds, but not its product.
    overflowing = spoilt("model.layers.1.mlp.down_proj.weight", value=60000.0, dtype=torch.float16)
    with pytest.raises(NotFiniteError, match=r"float16, first in layer 1 of 3; execution\.dtype=float32 or bfloat16"):
        generate(overflowing, PROMPT, SETTINGS, np.random.default_rng(0))


@pytest.mark.parametrize("role", ["verifier", "draft"])
def test_a_model_without_a_finite_pass_is_refused_before_any_prompt(role):
    pair = Pair(tiny.llama(2), tiny.llama(3), None, ())
    refuse_unless_finite(pair)
    with pytest.raises(UserError, match=r"^spoilt gave NaN or infinite logits in float32, first in layer 0 of 3$"):
        refuse_unless_finite(replace(pair, **{role: spoilt(PLACES["layer 0 of 3"])}))


def test_attention_that_cannot_be_measured_is_a_line():
    with pytest.raises(UserError, match=r"^the attention of spoilt cannot be measured: rows of attention do not sum"):
        describe_attention(spoilt("model.layers.0.self_attn.q_proj.weight"))


def test_scores_that_a_short_pass_hides_are_found():
    # Every query is NaN, and torch's causal attention over few keys gives numbers all the same.
    model = spoilt("model.layers.0.self_attn.q_proj.weight")
    model.module.get_parameter("model.layers.0.self_attn.q_proj.weight").fill_(torch.nan)
    with pytest.raises(UserError, match="spoilt gave NaN or infinite logits in float32, first in layer 0 of 3"):
        refuse_unless_finite(Pair(model, tiny.llama(2), None, ()))
