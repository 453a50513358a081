"""A prompt of one's own as long as the shipped models take, through the whole study in a bounded memory."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import numpy as np
import pytest
import torch
from processes import finish, start
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from specstudy import open_run
from specstudy.measure.decode import attention_from_generated
from specstudy.measure.sinks import answer_sums, prefill_sums, received
from specstudy.models.cache import CachedModel
from specstudy.models.load import Pair

N_TOKENS = 6000
LIMIT_GIB = 4.0
SENTENCES = (
    "The ferry leaves the northern quay at {0} minutes past six and carries {1} crates of lemons.",
    "Whoever repaired clock number {0} forgot to wind it, and so {1} letters arrived a day late.",
    "In the ledger of year {0} somebody counted {1} herons on the frozen lake and then crossed them out.",
    "Add {0} grams of rye flour to {1} grams of warm water; stir until nothing dry is left.",
)


def long_text(tokenizer: PreTrainedTokenizerBase, n_tokens: int) -> str:
    """About that many tokens of numbered sentences, no two alike."""
    text = " ".join(SENTENCES[i % 4].format(3 * i + 1, 7 * i + 5) for i in range(n_tokens // 15))
    ids: list[int] = tokenizer(text)["input_ids"][:n_tokens]
    return str(tokenizer.decode(ids))


def peak_of_children_gib() -> float:
    """The most resident memory that any process started and awaited by this one ever had."""
    peak = getrusage(RUSAGE_CHILDREN).ru_maxrss
    return peak / 2**30 if sys.platform == "darwin" else peak / 2**20


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_long_prompt_goes_through_the_whole_study_in_four_gib(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    text = long_text(tokenizer, N_TOKENS)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt_id": "long", "text": text}) + "\n")
    study = start(
        "study",
        "prompts=file",
        f"prompts.path={prompts}",
        f"output_dir={tmp_path / 'outputs'}",
        "decode.max_new_tokens=8",
        "execution.device=cpu",
        "execution.progress=off",
    )
    finished = finish(study, timeout_s=1500)
    assert finished.status == 0, finished.err
    opened = open_run(tmp_path / "outputs" / "latest")
    assert opened.errors.empty
    assert opened.manifest["self_checks"]["speculate"]["passed"]
    tokens = opened.prefill_tokens
    assert len(tokens) == opened.prefill_prompts["n_tokens"][0] == len(opened.decode_attention) > N_TOKENS
    assert tokens["attention_share"].sum() == pytest.approx(1.0, abs=1e-4)
    assert peak_of_children_gib() < LIMIT_GIB


def test_the_shipped_verifier_against_its_eager_maps(
    pair: Pair, reference: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    ids: list[int] = tokenizer(long_text(tokenizer, 300))["input_ids"]
    n, n_answer = len(ids), 40
    with torch.no_grad():
        layers = reference(input_ids=torch.tensor([ids]), output_attentions=True).attentions
    maps = torch.stack([layer[0] for layer in layers]).double().numpy()
    found = received(prefill_sums(pair.verifier, ids, window=16))
    np.testing.assert_allclose(found.per_visible_query, (maps.sum(2) / np.arange(n, 0, -1)).mean((0, 1)), rtol=3e-5)
    np.testing.assert_allclose(found.share, maps.sum(2).mean((0, 1)) / n, rtol=3e-5)
    np.testing.assert_allclose(found.window, maps[:, :, -16:, :-16].mean((0, 1, 2)), rtol=3e-5)
    cached = CachedModel(pair.verifier)
    cached.prefill(torch.tensor(ids[:-n_answer]))
    sums = answer_sums(cached, ids[:-n_answer], ids[-n_answer:])
    answered = attention_from_generated(sums, n - n_answer, n_answer)
    np.testing.assert_allclose(answered, maps[:, :, -n_answer:, :-n_answer].mean((0, 1, 2)), rtol=3e-5)
