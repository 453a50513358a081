"""Models as versions of prompts alter them: exact with respect to the altered verifier, and as before afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from tiny import logits_without_position, uncached_logits
from tiny_study import tiny_pair

from specstudy.measure.altered import altered, generation_settings, hidden_position
from specstudy.measure.decode import GenerationSettings, generate, measure_decode
from specstudy.measure.sampling import Warp
from specstudy.measure.self_check import probability_places, run_self_check
from specstudy.measure.speculation_records import SpeculationSettings, make_proposer, measure_speculation
from specstudy.measure.speculative import SpeculativeLoop
from specstudy.models.cache import CachedModel
from specstudy.models.load import LanguageModel, Pair
from specstudy.prompts import Prompt, RenderedPrompt, render
from specstudy.prompts.versions import at_temperatures, with_hidden_positions, with_lowered_keys

NEW_TOKENS = 12
GREEDY = GenerationSettings(Warp(0.0, 1.0), NEW_TOKENS, (), 3)
PROMPT = Prompt("p", "own", "Say one.")


@pytest.fixture(scope="module")
def pair() -> Pair:
    return tiny_pair()


def versions(pair: Pair) -> dict[str, RenderedPrompt]:
    made = [
        *with_hidden_positions([PROMPT]),
        *with_lowered_keys([PROMPT], (1.0, 4.0))[1:],
        *at_temperatures([PROMPT], (1.0, 1.6), 0.7)[1:],
    ]
    return {p.version.name: render(p, pair.tokenizer) for p in made if p.version}


LOWERED = [f"{key}_lowered{whom}2" for key in ("structural", "content") for whom in ("", "_in_both")]
HIDDEN = [f"hidden_{where}{whom}" for where in ("first", "boundary", "random") for whom in ("", "_from_both")]


def masked_greedy(model: LanguageModel, prompt: list[int], position: int) -> list[int]:
    """Greedy decoding by plain calls of the model, the whole text anew for each token."""
    ids = list(prompt)
    for _ in range(NEW_TOKENS):
        ids.append(int(logits_without_position(model, ids, position)[-1].argmax()))
    return ids[len(prompt) :]


def speculative(pair: Pair, rendered: RenderedPrompt, settings: GenerationSettings, seed: int = 0) -> list[int]:
    how = SpeculationSettings(settings, 3, "model", "none", None)
    rng = np.random.default_rng(seed)
    return (
        SpeculativeLoop(pair.verifier, make_proposer(pair, how), rendered.token_ids, settings, 3, rng).run().token_ids
    )


@pytest.mark.parametrize("name", HIDDEN)
def test_both_loops_write_what_the_altered_verifier_writes(pair: Pair, name: str) -> None:
    rendered = versions(pair)[name]
    expected = masked_greedy(pair.verifier, rendered.token_ids, hidden_position(rendered, 0))
    with altered(pair, rendered, 0):
        assert generate(pair.verifier, rendered.token_ids, GREEDY, np.random.default_rng(0)).token_ids == expected
        assert speculative(pair, rendered, GREEDY) == expected
    plain = generate(pair.verifier, rendered.token_ids, GREEDY, np.random.default_rng(0)).token_ids
    assert plain != expected, "hiding it changes nothing here"


def test_the_position_is_the_one_that_the_version_names(pair: Pair) -> None:
    found = {name: hidden_position(rendered, 0) for name, rendered in versions(pair).items() if name in HIDDEN}
    positions = versions(pair)["unaltered"].positions
    for whom in ("", "_from_both"):
        assert found[f"hidden_first{whom}"] == 0
        assert found[f"hidden_boundary{whom}"] == len(positions) - 1
    assert found["hidden_random"] == found["hidden_random_from_both"], "the same one for either"
    assert not positions[found["hidden_random"]].is_structural
    others = [
        render(p, pair.tokenizer) for i in range(12) for p in with_hidden_positions([replace(PROMPT, prompt_id=f"{i}")])
    ]
    drawn = {hidden_position(r, 0) for r in others if r.prompt.version and r.prompt.version.kind == "hidden_random"}
    assert len(drawn) > 3
    rendered = versions(pair)["hidden_random"]
    assert len({hidden_position(rendered, seed) for seed in range(12)}) > 3


@pytest.mark.parametrize("name", HIDDEN)
def test_it_is_hidden_from_the_models_that_the_version_names_and_from_no_other(pair: Pair, name: str) -> None:
    rendered = versions(pair)[name]
    ids = [*rendered.token_ids, 5, 9, 2]
    position = hidden_position(rendered, 0)
    plain = [uncached_logits(model, ids) for model in (pair.verifier, pair.draft)]
    masked = [logits_without_position(model, ids, position) for model in (pair.verifier, pair.draft)]
    with altered(pair, rendered, 0):
        seen = [uncached_logits(model, ids) for model in (pair.verifier, pair.draft)]
    torch.testing.assert_close(seen[0], masked[0])
    torch.testing.assert_close(seen[1], masked[1] if name.endswith("_from_both") else plain[1])
    assert not torch.allclose(masked[1], plain[1], atol=1e-3)


@pytest.mark.parametrize("name", [*HIDDEN, *LOWERED, "temperature2", "temperature_of_verifier2"])
def test_the_self_check_passes_on_the_altered_models(pair: Pair, name: str) -> None:
    rendered = versions(pair)[name]
    settings = generation_settings(GenerationSettings(Warp(0.7, 0.9), 32, (), 3), rendered.prompt)
    how = SpeculationSettings(settings, 4, "model", "none", None)
    with altered(pair, rendered, 0):
        found = run_self_check(pair, [rendered.token_ids], [how], np.random.default_rng)
    assert found.passed
    assert found.summary()["passed"]


def test_the_self_check_sees_an_alteration_that_ends_too_early(pair: Pair) -> None:
    """Prefill with the position hidden, the passes after it without: a fault that leaves the text readable."""
    rendered = versions(pair)["hidden_first"]
    how = SpeculationSettings(replace(GREEDY, warp=Warp(0.7, 0.9)), 4, "model", "none", None)
    real = CachedModel.forward

    def without_the_mask(self: CachedModel, *arguments: Any, **named: Any) -> torch.Tensor:
        hiding = self.model.attention
        self.model.module.set_attn_implementation("sdpa")
        try:
            return real(self, *arguments, **named)
        finally:
            self.model.module.set_attn_implementation(hiding)

    with pytest.MonkeyPatch.context() as patched, altered(pair, rendered, 0):
        patched.setattr(CachedModel, "forward", without_the_mask)
        assert not run_self_check(pair, [rendered.token_ids], [how], np.random.default_rng).passed


@pytest.mark.parametrize("fault", [ValueError("fault"), KeyboardInterrupt()])
def test_models_are_as_before_after_an_exception(pair: Pair, fault: BaseException) -> None:
    rendered = versions(pair)["hidden_first_from_both"]
    before = [uncached_logits(model, rendered.token_ids) for model in (pair.verifier, pair.draft)]
    with pytest.raises(type(fault)), altered(pair, rendered, 0):
        raise fault
    after = [uncached_logits(model, rendered.token_ids) for model in (pair.verifier, pair.draft)]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_prompt_without_content_has_nothing_to_hide_at_random(pair: Pair) -> None:
    prompt = next(p for p in with_hidden_positions([replace(PROMPT, text="")]) if p.version and p.version.hidden)
    with pytest.raises(ValueError, match="no content position"), altered(pair, render(prompt, pair.tokenizer), 0):
        pass


@pytest.mark.parametrize("where", ["first", "random", "boundary"])
def test_the_answer_pays_nothing_to_a_hidden_position(pair: Pair, where: str) -> None:
    found = {}
    for name in ("unaltered", f"hidden_{where}"):
        rendered = versions(pair)[name]
        with altered(pair, rendered, 0):
            records = measure_decode(pair, rendered, GREEDY, [np.random.default_rng(0)])["decode_attention"]
        found[name] = np.array([row.attention_from_generated for row in records])
    position = hidden_position(rendered, 0)
    hidden = found[f"hidden_{where}"]
    assert hidden[position] == 0.0
    assert found["unaltered"][position] > 0.0
    assert (np.delete(hidden, position) > 0.0).all()


@pytest.mark.parametrize(
    "name", ["temperature1", "temperature2", "temperature_of_verifier1", "temperature_of_verifier2"]
)
def test_the_text_has_the_verifiers_distribution_whatever_the_draft_samples_at(pair: Pair, name: str) -> None:
    rendered = versions(pair)[name]
    settings = generation_settings(GenerationSettings(Warp(0.7, 0.9), 240, (), 3), rendered.prompt)
    rendered = replace(rendered, positions=rendered.positions[:6])
    answer = speculative(pair, rendered, settings)
    logits = uncached_logits(pair.verifier, [*rendered.token_ids, *answer])[len(rendered.positions) - 1 : -1]
    rng = np.random.default_rng(1)
    places = probability_places(logits, torch.tensor(answer), settings.warp, rng)
    assert stats.kstest(places, "uniform").pvalue > 1e-4
    at_the_drafts = probability_places(logits, torch.tensor(answer), Warp(0.25, 0.9), rng)
    assert stats.kstest(at_the_drafts, "uniform").pvalue < 1e-4, "the test must tell temperatures apart"


def test_the_records_say_what_was_imposed(pair: Pair) -> None:
    usual = GenerationSettings(Warp(0.7, 0.9), NEW_TOKENS, (), 3)
    drafted: dict[str, list[float]] = {}
    for name in ("temperature2", "temperature_of_verifier2"):
        rendered = versions(pair)[name]
        settings = generation_settings(usual, rendered.prompt)
        assert settings.warp == Warp(1.6, 0.9)
        assert settings.draft_warp == Warp(0.7 if "verifier" in name else 1.6, 0.9)
        how = SpeculationSettings(settings, 3, "model", "none", None, baseline=False)
        rngs = (np.random.default_rng(0), np.random.default_rng(1))
        records = measure_speculation(pair, rendered, how, 0, *rngs)
        rows = itertools.chain.from_iterable(records.values())
        assert {row.temperature for row in rows} == {1.6}
        drafted[name] = list(_draft_sampling_entropies(records["spec_tokens"]))
    assert np.mean(drafted["temperature_of_verifier2"]) < np.mean(drafted["temperature2"])
    assert generation_settings(usual, PROMPT) is usual


def _draft_sampling_entropies(rows: list[object]) -> Iterator[float]:
    for row in rows:
        if row.kind == "draft":
            yield row.draft_sampling_entropy_bits
