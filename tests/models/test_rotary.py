"""Where frequencies begin to depend on a text's length, and that up to there all passes agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tiny
import torch
from rotary_models import dynamic_config, longrope, longrope_config
from transformers import PreTrainedConfig

from specstudy.measure.decode import GenerationSettings, generate
from specstudy.measure.sampling import Warp
from specstudy.measure.sinks import negative_log2_likelihoods
from specstudy.measure.teacher_forced import teacher_forced
from specstudy.models.cache import CachedModel
from specstudy.models.load import Pair
from specstudy.models.rotary import constant_frequencies

SWITCH = 48


def remote(**stated: Any) -> PreTrainedConfig:
    """A configuration that comes with a model's own code."""
    config = PreTrainedConfig()
    for name, value in {"max_position_embeddings": 512, **stated}.items():
        setattr(config, name, value)
    return config


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        (longrope_config(SWITCH), SWITCH),
        (dynamic_config(), 256),
        (tiny.configurations()["llama"], None),
        (tiny.configurations()["alternating"], None),
        (tiny.configurations()["learned positions"], None),
        (remote(rope_parameters={"type": "su", "original_max_position_embeddings": 100}), 100),
        (remote(rope_parameters={"rope_type": "dynamic", "alpha": 1000.0}), None),
        (remote(rope_parameters={"rope_type": "yarn", "original_max_position_embeddings": 100}), None),
        (
            remote(
                layer_types=["full_attention", "sliding_attention"],
                rope_parameters={
                    "full_attention": {"rope_type": "longrope", "original_max_position_embeddings": 70},
                    "sliding_attention": {"rope_type": "default"},
                },
            ),
            70,
        ),
    ],
    ids=["longrope", "dynamic", "plain", "by layer", "none", "old name", "fixed alpha", "yarn", "one kind of layer"],
)
def test_the_limit_is_read_from_the_configuration(config: PreTrainedConfig, limit: int | None) -> None:
    assert constant_frequencies(config) == limit


def test_the_context_of_a_pair_ends_at_the_first_switch() -> None:
    early, late, plain = longrope(0, 40), longrope(1, SWITCH), tiny.llama()
    for verifier, draft in ((early, late), (late, early), (plain, early), (early, plain)):
        assert Pair(verifier, draft, None, ()).context_length == 40
    assert Pair(plain, plain, None, ()).context_length == 256


@pytest.mark.parametrize("config", [longrope_config(SWITCH), dynamic_config(max_position_embeddings=SWITCH)])
def test_up_to_the_limit_every_way_through_a_text_is_exact_and_one_token_further_is_not(
    config: PreTrainedConfig,
) -> None:
    model = tiny.language_model(config, 2)
    text = torch.randint(0, tiny.VOCABULARY, (SWITCH + 1,), generator=torch.Generator().manual_seed(0))

    def step_by_step(n_tokens: int) -> torch.Tensor:
        cached = CachedModel(model)
        cached.prefill(text[: n_tokens - 9])
        return torch.cat([cached.forward(text[i : i + 1], keep=1) for i in range(n_tokens - 9, n_tokens)])

    within = tiny.uncached_logits(model, text[:SWITCH].tolist())
    torch.testing.assert_close(step_by_step(SWITCH), within[-9:], atol=1e-4, rtol=1e-4)
    beyond = tiny.uncached_logits(model, text.tolist())
    assert (step_by_step(SWITCH + 1)[-1] - beyond[-1]).abs().max() > 0.05


def test_what_is_measured_of_a_text_that_ends_at_the_switch_is_that_of_a_plain_pass() -> None:
    pair = Pair(longrope(0, SWITCH), longrope(1, SWITCH), None, ())
    prompt = list(range(1, 29))
    settings = GenerationSettings(Warp(0.0, 1.0), SWITCH - len(prompt), ())
    generation = generate(pair.verifier, prompt, settings, np.random.default_rng(0))
    text = [*prompt, *generation.token_ids]
    assert len(text) == pair.context_length
    verifier, draft = (tiny.uncached_logits(model, text).log_softmax(-1) for model in (pair.verifier, pair.draft))
    answered = torch.arange(len(prompt) - 1, len(text) - 1)
    assert generation.token_ids == verifier[answered].argmax(-1).tolist()
    entropies = [(-p.exp() * p / np.log(2)).sum(-1)[answered].numpy() for p in (verifier, draft)]
    np.testing.assert_allclose([step.entropy_bits for step in generation.steps], entropies[0], atol=1e-4)
    forced = teacher_forced(pair, prompt, generation.token_ids, settings.warp)
    np.testing.assert_allclose(forced.draft_entropy_bits, entropies[1], atol=1e-4)
    likelihoods = -verifier[:-1].gather(-1, torch.tensor(text[1:])[:, None])[:, 0].numpy() / np.log(2)
    np.testing.assert_allclose(negative_log2_likelihoods(pair.verifier, text), likelihoods, atol=1e-4)
