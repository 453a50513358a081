"""The numbers of a study of the shipped models, computed again without the code that measured them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from processes import N_NEW_TOKENS
from scipy import stats
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from specstudy.config import PROJECT_ROOT
from specstudy.measure.decode import GenerationSettings
from specstudy.measure.proposers import ModelProposer
from specstudy.measure.sampling import Warp
from specstudy.measure.speculation_records import SpeculationSettings, measure_speculation
from specstudy.measure.speculative import SpeculativeLoop
from specstudy.models.load import LanguageModel, Pair
from specstudy.prompts import Prompt, render
from specstudy.tables.run import Run

pytestmark = pytest.mark.timeout(900)

WINDOW = 16
TEXTS = {
    row["prompt_id"]: row["text"]
    for row in map(json.loads, (PROJECT_ROOT / "data/prompts/study50.jsonl").read_text().splitlines())
}


def prompt_ids(tokenizer: PreTrainedTokenizerBase, prompt_id: str) -> list[int]:
    """The prompt's tokens by the chat template, as anybody would make them."""
    messages = [{"role": "user", "content": TEXTS[prompt_id]}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


@torch.inference_mode()
def attentions(model: PreTrainedModel, ids: list[int]) -> np.ndarray:
    """Every attention weight, float64 [layers, heads, queries, keys]."""
    maps = model(torch.tensor([ids]), output_attentions=True, use_cache=False).attentions
    return np.stack([layer[0].numpy() for layer in maps]).astype(np.float64)


def robust_z(values: np.ndarray, content: np.ndarray) -> np.ndarray:
    logs = np.log(values)
    return (logs - np.median(logs[content])) / (1.4826 * stats.median_abs_deviation(logs[content]))


@pytest.fixture(scope="module", params=["factual-01", "code-01"])
def prompt_id(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def rows(table: pd.DataFrame, prompt_id: str, repetition: int = 0) -> pd.DataFrame:
    """A prompt's rows, of one of its answers where there are several."""
    own = table[table["prompt_id"] == prompt_id]
    return own[own["repetition"] == repetition] if "repetition" in own else own


def test_prefill(
    prompt_id: str, study_run: Run, reference: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    ids = prompt_ids(tokenizer, prompt_id)
    table = rows(study_run.prefill_tokens, prompt_id)
    assert table["token_id"].tolist() == ids
    content = ~table["is_structural"].to_numpy(dtype=bool)
    assert tokenizer.decode(np.array(ids)[content]).strip() == TEXTS[prompt_id].strip()

    weights, n = attentions(reference, ids), len(ids)
    received = weights.sum(2).mean((0, 1)) / np.arange(n, 0, -1)
    share = weights.sum(2).mean((0, 1)) / n
    late = weights[:, :, -WINDOW:, : n - WINDOW].mean((0, 1, 2))
    seen = content[: n - WINDOW]
    close: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-7}
    np.testing.assert_allclose(table["attention_received"], received, **close)
    np.testing.assert_allclose(table["attention_share"], share, **close)
    np.testing.assert_allclose(table["attention_window"][: n - WINDOW], late, **close)
    assert table["attention_window"][n - WINDOW :].isna().all()
    np.testing.assert_allclose(table["z_score"], robust_z(received, content), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(table["z_window"][: n - WINDOW], robust_z(late, seen), rtol=1e-3, atol=1e-3)
    assert (table["is_sink"] == (robust_z(received, content) > 6)).all()

    (prompt,) = rows(study_run.prefill_prompts, prompt_id).itertuples()
    hoover = np.maximum(late[seen] - late[seen].mean(), 0).sum() / late[seen].sum()
    boundary = np.mean([stats.entropy(row, base=2) for row in weights[:, :, -1].reshape(-1, n)]) / np.log2(n)
    assert prompt.context_health_soft == pytest.approx(10 * (1 - hoover), rel=1e-4)
    assert prompt.structural_share == pytest.approx(share[~content].sum(), rel=1e-4)
    assert prompt.boundary_attention_entropy == pytest.approx(boundary, rel=1e-4)
    assert prompt.sink_rate == pytest.approx(
        (weights[:, :, :, 0].mean(2) > 0.3).mean(), abs=2 / weights[..., 0, 0].size
    )
    with torch.inference_mode():
        logs = reference(torch.tensor([ids])).logits[0].log_softmax(-1)
    bits = -logs[torch.arange(n - 1), torch.tensor(ids[1:])].numpy() / np.log(2)
    assert prompt.prompt_nll_bits == pytest.approx(bits[content[1:]].mean(), rel=1e-4)

    heads = rows(study_run.prefill_heads, prompt_id)
    np.testing.assert_allclose(heads["first_token_attention"], weights[:, :, :, 0].mean(2).ravel(), **close)


def test_decode(prompt_id: str, study_run: Run, reference: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    ids = prompt_ids(tokenizer, prompt_id)
    output = reference.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        max_new_tokens=N_NEW_TOKENS,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    answer = output.sequences[0, len(ids) :]
    logs = torch.cat(output.logits).log_softmax(-1)
    table = rows(study_run.decode_tokens, prompt_id)
    for repetition in range(3):
        assert rows(study_run.decode_tokens, prompt_id, repetition)["token_id"].tolist() == answer.tolist()
    entropies = [stats.entropy(row.exp().numpy(), base=2) for row in logs]
    np.testing.assert_allclose(table["entropy_bits"], entropies, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(table["entropy_norm"], np.array(entropies) / np.log2(49152), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(table["logprob"], logs[torch.arange(len(answer)), answer].numpy(), rtol=1e-3, atol=1e-4)
    assert (table["sampling_entropy_bits"] == 0).all()
    probabilities, likeliest = logs.exp().topk(5)
    np.testing.assert_array_equal(np.stack(table["top_ids"].to_list()), likeliest.numpy())
    np.testing.assert_allclose(np.stack(table["top_probs"].to_list()), probabilities.numpy(), rtol=1e-3, atol=1e-5)
    (run,) = rows(study_run.decode_runs, prompt_id).itertuples()
    assert run.mean_entropy_bits == pytest.approx(np.mean(entropies), rel=1e-3)
    assert run.text == tokenizer.decode(answer, skip_special_tokens=True)
    (speculated,) = rows(study_run.spec_runs, prompt_id).itertuples()
    assert speculated.text == run.text

    weights = attentions(reference, [*ids, *answer.tolist()])
    attended = rows(study_run.decode_attention, prompt_id)
    expected = weights[:, :, len(ids) :, : len(ids)].mean((0, 1, 2))
    np.testing.assert_allclose(attended["attention_from_generated"], expected, rtol=1e-4, atol=1e-7)
    content = ~rows(study_run.prefill_tokens, prompt_id)["is_structural"].to_numpy(dtype=bool)
    steps = rows(study_run.decode_attention_steps, prompt_id)
    for step, row in enumerate(steps.to_dict("records")):
        for name, value in attention_behind(weights, content, step).items():
            assert row[name] == pytest.approx(value.mean(), rel=1e-4, abs=1e-6), name
            assert row[f"{name}_last_third"] == pytest.approx(value[20:].mean(), rel=1e-4, abs=1e-6), name
    speculative = rows(study_run.spec_attention_steps, prompt_id)
    tokens = rows(study_run.spec_tokens, prompt_id)
    tested = tokens[(tokens["kind"] == "bonus") | tokens["outcome"].isin(["accepted", "rejected"])]
    place = ["round", "index"]
    assert speculative[place].to_numpy().tolist() == tested.sort_values(place)[place].to_numpy().tolist()
    # The speculative answer is the same text: each of its queries pays what the same query pays in the other.
    for name in ("sink_mass", "own_mass", "attention_entropy_rest_middle_third"):
        np.testing.assert_allclose(speculative[name], steps[name], rtol=1e-4, atol=1e-6)


def attention_behind(weights: np.ndarray, content: np.ndarray, step: int) -> dict[str, np.ndarray]:
    """What the query pays whose logits gave the token of that step, [layers, heads] a measure."""
    n_prompt = len(content)
    position = n_prompt - 1 + step
    row = weights[:, :, position, : position + 1]
    inner = np.arange(1, n_prompt)
    to_content, own = row[..., inner[content[1:]]].sum(-1), row[..., n_prompt:].sum(-1)
    measures = {
        "sink_mass": row[..., 0],
        "content_mass": to_content,
        "structural_mass": row[..., inner[~content[1:]]].sum(-1),
        "own_mass": own,
        "attention_entropy": stats.entropy(row, axis=-1) / np.log(position + 1),
        "attention_entropy_rest": stats.entropy(row[..., 1:], axis=-1) / np.log(position),
        "previous_mass": row[..., -2],
    }
    if step:
        per_content = to_content / content[1:].sum()
        measures["lookback_ratio"] = per_content / (per_content + own / step)
    return measures


@torch.inference_mode()
def next_token_logits(model: LanguageModel, ids: list[int]) -> np.ndarray:
    """Logits after a text without any cache, float64 [V]."""
    logits: np.ndarray = model.module(torch.tensor([ids]), use_cache=False).logits[0, -1].double().numpy()
    return logits


def warped(logits: np.ndarray, temperature: float, top_p: float) -> np.ndarray:
    """What is sampled from: softmax at a temperature, the smallest set that holds top_p, renormalised."""
    p = np.exp((logits - logits.max()) / temperature)
    p /= p.sum()
    order = np.argsort(-p, kind="stable")
    n_kept = int(np.searchsorted(p[order].cumsum(), top_p)) + 1
    kept = np.zeros_like(p)
    kept[order[:n_kept]] = p[order[:n_kept]]
    return kept / kept.sum()


def test_the_draft_over_the_verifiers_text(
    prompt_id: str, study_run: Run, pair: Pair, tokenizer: PreTrainedTokenizerBase
) -> None:
    ids = prompt_ids(tokenizer, prompt_id)
    table = rows(study_run.decode_tokens, prompt_id)
    answer = table["token_id"].tolist()
    for step, row in enumerate(table.itertuples()):
        logits = next_token_logits(pair.draft, [*ids, *answer[:step]])
        p = np.exp(logits - logits.max())
        assert row.draft_entropy_bits == pytest.approx(stats.entropy(p, base=2), rel=1e-3, abs=1e-4)
        # Both are greedy here: they agree or they do not.
        assert row.expected_accept == float(logits.argmax() == answer[step])


def greedy_loop(pair: Pair, draft: LanguageModel, ids: list[int], gamma: int, n: int = N_NEW_TOKENS) -> SpeculativeLoop:
    settings = GenerationSettings(Warp(0.0, 1.0), n, pair.eos_ids)
    return SpeculativeLoop(pair.verifier, ModelProposer(draft), ids, settings, gamma, np.random.default_rng(0))


def test_greedy_speculative_decoding_gives_the_verifiers_text_at_every_gamma(
    study_run: Run, pair: Pair, tokenizer: PreTrainedTokenizerBase
) -> None:
    ids = prompt_ids(tokenizer, "code-01")
    expected = rows(study_run.decode_tokens, "code-01")["token_id"].tolist()
    for gamma in (1, 2, 3, N_NEW_TOKENS):
        assert greedy_loop(pair, pair.draft, ids, gamma).run().token_ids == expected


@pytest.mark.parametrize("drafts_for_itself", [False, True], ids=["draft", "verifier as draft"])
def test_after_every_round_the_caches_continue_as_an_uncached_pass_would(
    drafts_for_itself: bool, pair: Pair, tokenizer: PreTrainedTokenizerBase
) -> None:
    ids = prompt_ids(tokenizer, "factual-01")
    loop = greedy_loop(pair, pair.verifier if drafts_for_itself else pair.draft, ids, gamma=2)
    assert isinstance(loop.proposer, ModelProposer)
    drafting = loop.proposer.cached
    loop.verifier.prefill(loop.text[: len(ids) - 1])
    loop.proposer.prefill(loop.text[: len(ids) - 1])
    accepted = []
    for index in range(2):
        accepted.append(loop.round(index, 2).n_accepted)
        text = loop.text[: loop.length]
        assert loop.verifier.length == loop.length - 1
        assert drafting.length <= loop.length - 1
        for cached in (loop.verifier, drafting):
            cached.check_length()
            held = cached.length
            logits = cached.forward(text[held:], keep=1)[0].numpy()
            np.testing.assert_allclose(logits, next_token_logits(cached.model, text.tolist()), rtol=1e-3, atol=1e-3)
            cached.rollback(held)
    if drafts_for_itself:
        assert accepted == [2, 2]


def test_probabilities_of_speculation_are_those_of_uncached_passes(
    pair: Pair, tokenizer: PreTrainedTokenizerBase
) -> None:
    temperature, top_p, gamma = 0.7, 0.9, 3
    rendered = render(Prompt("code-01", "code", TEXTS["code-01"]), pair.tokenizer)
    settings = SpeculationSettings(
        GenerationSettings(Warp(temperature, top_p), N_NEW_TOKENS, pair.eos_ids), gamma, "model", "none", 0.5
    )
    rngs = [np.random.default_rng(seed) for seed in (1, 2)]
    records = measure_speculation(pair, rendered, settings, 0, *rngs)
    text = prompt_ids(tokenizer, "code-01")
    assert text == rendered.token_ids
    expected_accepts: list[float] = []
    by_round: dict[int, list[Any]] = {}
    for record in records["spec_tokens"]:
        by_round.setdefault(record.round, []).append(record)
    for tokens in by_round.values():
        for token in tokens:
            if token.outcome == "untested":
                continue
            before = text + [t.token_id for t in tokens if t.index < token.index and t.outcome == "accepted"]
            p = warped(next_token_logits(pair.verifier, before), temperature, top_p)
            if token.kind == "draft":
                q = warped(next_token_logits(pair.draft, before), temperature, top_p)
                expected_accepts.append(np.minimum(p, q).sum())
                assert token.p_draft == pytest.approx(q[token.token_id], rel=1e-3)
                assert token.expected_accept == pytest.approx(expected_accepts[-1], rel=1e-3, abs=1e-5)
                assert token.accept_prob == pytest.approx(
                    min(1, p[token.token_id] / q[token.token_id]), rel=1e-3, abs=1e-6
                )
            assert token.p_verifier == pytest.approx(p[token.token_id], rel=1e-3, abs=1e-6)
        text += [token.token_id for token in tokens if token.emitted]
    (run,) = records["spec_runs"]
    assert run.alpha_expected == pytest.approx(np.mean(expected_accepts), rel=1e-3)
    assert run.n_tested == len(expected_accepts)
    n_accepted = sum(token.outcome == "accepted" for tokens in by_round.values() for token in tokens)
    assert (run.n_accepted, run.alpha) == (n_accepted, n_accepted / len(expected_accepts))
    assert list(by_round) == sorted(by_round)
    assert all(b - a == 1 for a, b in pairwise(by_round))
