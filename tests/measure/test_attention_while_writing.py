"""Attention while writing against the full eager maps of plain transformers, and what a fault in it looks like."""

from __future__ import annotations

import attention_models
import numpy as np
import pytest
import tiny
import torch
from numpy.typing import NDArray

from specstudy.measure import attention_while_writing as writing
from specstudy.measure.sinks import answer_sums
from specstudy.models import attention, attention_maps, attention_steps
from specstudy.models.attention_steps import AttentionSteps, GeneratingQueries
from specstudy.models.cache import CachedModel
from specstudy.models.load import LanguageModel
from specstudy.prompts.prompt import Position, Prompt, RenderedPrompt
from specstudy.records import ATTENTION_MEASURES, THIRDS
from specstudy.tables.schema import to_records, to_table

Floats = NDArray[np.float64]
ALL = {**attention_models.by_function(), **attention_models.by_maps()}
N_PROMPT, N_ANSWER = 29, 11
IDS: list[int] = np.random.default_rng(0).integers(0, tiny.VOCABULARY, N_PROMPT + N_ANSWER).tolist()
IS_CONTENT = np.array([False, False, True, True, False] * 6)[:N_PROMPT]


def steps_of(model: LanguageModel, ids: list[int] = IDS, n_prompt: int = N_PROMPT) -> AttentionSteps:
    cached = CachedModel(model)
    cached.prefill(torch.tensor(ids[: n_prompt + 3]))  # what it holds beyond the prompt is taken back
    queries = GeneratingQueries(torch.tensor(IS_CONTENT[:n_prompt]))
    steps = answer_sums(cached, ids[:n_prompt], ids[n_prompt:], queries).steps
    assert steps is not None
    return steps


def by_hand(maps: Floats, n_prompt: int = N_PROMPT) -> dict[str, Floats]:
    """From whole maps [L, H, S, S], query by query, without any of the project's sums."""
    n_answer = maps.shape[-1] - n_prompt
    is_content = IS_CONTENT[:n_prompt].copy()
    is_content[0] = False
    found: dict[str, Floats] = {name: np.full((*maps.shape[:2], n_answer), np.nan) for name in ATTENTION_MEASURES}
    for t in range(n_answer):
        i = n_prompt - 1 + t
        row = maps[:, :, i, : i + 1]
        content, own = row[..., :n_prompt][..., is_content].sum(-1), row[..., n_prompt:].sum(-1)
        found["sink_mass"][..., t] = row[..., 0]
        found["content_mass"][..., t], found["own_mass"][..., t] = content, own
        found["structural_mass"][..., t] = row[..., 1:n_prompt].sum(-1) - content
        if t:
            back = content / is_content.sum()
            found["lookback_ratio"][..., t] = back / (back + own / t)
        for name, keys in (("attention_entropy", row), ("attention_entropy_rest", row[..., 1:])):
            p = keys / keys.sum(-1, keepdims=True)
            bits = -(p * np.log2(np.where(p > 0, p, 1.0))).sum(-1)
            found[name][..., t] = bits / np.log2(keys.shape[-1])
        found["previous_mass"][..., t] = row[..., i - 1]
    return found


@pytest.mark.parametrize(("elements", "fewest"), [(1, 1), (1, 7), (10**9, 16)])
@pytest.mark.parametrize("kind", ALL)
def test_every_head_and_step_equals_eager_maps(
    kind: str, elements: int, fewest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "CHUNK_ELEMENTS", elements)
    monkeypatch.setattr(attention, "FEWEST_QUERIES", fewest)
    monkeypatch.setattr(attention_maps, "CHUNK_QUERIES", fewest)
    model = attention_models.language_model(ALL[kind])
    expected = by_hand(attention_models.eager_maps(model, IDS))
    found = writing.head_measures(steps_of(model), N_PROMPT, int(IS_CONTENT[1:].sum()))
    assert list(found) == list(ATTENTION_MEASURES)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5, err_msg=name)
    total = sum(found[f"{name}_mass"] for name in ("sink", "structural", "content", "own"))
    if kind == "sink parameter":
        assert (total < 0.99).any()
    else:
        np.testing.assert_allclose(total, 1.0, atol=1e-5)


def rendered(n_prompt: int = N_PROMPT) -> RenderedPrompt:
    positions = tuple(Position(IDS[i], "user", None if IS_CONTENT[i] else "header") for i in range(n_prompt))
    return RenderedPrompt(Prompt("p", "c", "text"), "text", positions)


def test_columns_are_means_over_heads_and_layers() -> None:
    steps = steps_of(attention_models.language_model(ALL["llama"]))
    measures = writing.head_measures(steps, N_PROMPT, int(IS_CONTENT[1:].sum()))
    columns = writing.step_columns(steps, rendered())
    assert len(columns) == N_ANSWER
    third = writing.thirds_of(steps.masses.shape[0])
    for measure, values in measures.items():
        for step, row in enumerate(columns):
            if measure == "lookback_ratio" and step == 0:
                assert row[measure] is None
                assert "lookback_ratio" in row["null_reason"]
                continue
            assert row[measure] == pytest.approx(values[:, :, step].mean(), abs=1e-12)
            for index, name in enumerate(THIRDS):
                chosen = values[third == index][:, :, step]
                found = row[f"{measure}_{name}"]
                assert found == pytest.approx(chosen.mean(), abs=1e-12) if chosen.size else found is None


@pytest.mark.parametrize(
    ("n_layers", "thirds"), [(1, [1]), (2, [0, 2]), (3, [0, 1, 2]), (4, [0, 1, 1, 2]), (5, [0, 0, 1, 2, 2])]
)
def test_thirds_of_few_layers(n_layers: int, thirds: list[int]) -> None:
    assert writing.thirds_of(n_layers).tolist() == thirds
    assert np.bincount(writing.thirds_of(30)).tolist() == [10, 10, 10]
    assert np.bincount(writing.thirds_of(28)).tolist() == [9, 10, 9]


def test_prompt_of_one_token_leaves_null_what_has_no_keys() -> None:
    model = attention_models.language_model(ALL["llama"])
    first, second, third, *_ = writing.step_columns(steps_of(model, n_prompt=1), rendered(1))
    assert first["sink_mass"] == pytest.approx(1.0)
    assert first["attention_entropy"] is first["previous_mass"] is first["attention_entropy_rest"] is None
    assert second["previous_mass"] == pytest.approx(second["sink_mass"])
    assert second["attention_entropy_rest"] is None
    assert second["attention_entropy"] is not None
    assert third["attention_entropy_rest"] is not None
    assert "too few keys" in first["null_reason"]
    assert third["lookback_ratio"] is None  # no content in such a prompt
    assert "no content" in third["null_reason"]


def finished(weights: torch.Tensor, kinds: torch.Tensor | None = None, shift: int = 0) -> AttentionSteps:
    """One layer of weights [H, T, S] for a prompt of 3 with one content position, by a table of kinds and a query
    that may be wrong."""
    layer = attention_steps.LayerSteps(GeneratingQueries(torch.tensor([False, False, True])), weights.shape[-1])
    layer.kinds = layer.kinds if kinds is None else kinds
    layer.add(weights, layer.first + shift, 0)
    return attention_steps.finished([layer], pays_no_key=False)


WEIGHTS = torch.tensor([[[0.5, 0.2, 0.3, 0.0, 0.0], [0.4, 0.1, 0.2, 0.3, 0.0]]])


def test_a_case_worked_out_by_hand() -> None:
    steps = finished(WEIGHTS)
    assert steps.masses[0, 0].tolist() == [pytest.approx([0.5, 0.2, 0.3, 0.0]), pytest.approx([0.4, 0.1, 0.2, 0.3])]
    assert steps.previous[0, 0].tolist() == pytest.approx([0.2, 0.2])
    assert float(steps.entropy_bits[0, 0, 0]) == pytest.approx(0.5 + 0.46439 + 0.52109, abs=1e-4)
    assert float(steps.rest_entropy_bits[0, 0, 0]) == pytest.approx(0.97095, abs=1e-4)  # of .4 and .6


def test_faults_are_seen() -> None:
    counted_twice = GeneratingQueries(torch.tensor([False, False, True])).key_kinds(5)
    counted_twice[0, attention_steps.STRUCTURAL] = 1.0
    with pytest.raises(FloatingPointError, match="add up"):
        finished(WEIGHTS, counted_twice)
    with pytest.raises(FloatingPointError, match="sum to 1"):
        finished(WEIGHTS * 0.9)
    later = torch.tensor([[[0.4, 0.2, 0.3, 0.1, 0.0], [0.4, 0.1, 0.2, 0.3, 0.0]]])
    with pytest.raises(FloatingPointError, match="later"):
        finished(later)
    with pytest.raises(Exception, match="every layer"):
        finished(WEIGHTS, shift=1)  # the query of the step after: the last one is missing


def test_heads_are_kept_in_half_precision_and_in_order() -> None:
    steps = steps_of(attention_models.language_model(ALL["llama"]))
    measures = writing.head_measures(steps, N_PROMPT, int(IS_CONTENT[1:].sum()))
    records = writing.head_records({"prompt_id": "p", "category": "c", "repetition": 0}, steps)
    table = to_records("decode_attention_heads", to_table("decode_attention_heads", records))
    n_layers, n_heads, n_steps = steps.previous.shape
    assert [(row.layer, row.head) for row in table] == [*np.ndindex(n_layers, n_heads)]
    bits = np.log2(N_PROMPT + np.arange(n_steps))
    for row in table:
        for name in ("sink_mass", "structural_mass", "content_mass", "own_mass", "previous_mass"):
            np.testing.assert_allclose(getattr(row, name), measures[name][row.layer, row.head], atol=5e-4)
        entropy = measures["attention_entropy"][row.layer, row.head] * bits
        np.testing.assert_allclose(row.attention_entropy_bits, entropy, rtol=1e-3)
