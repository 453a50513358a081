"""The routing stage on a tiny random mixture of experts, against the other stages and uncached passes."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
import routing
import tiny
import torch
import workflow
from decode import DECODE
from routing import ROUTING
from speculate import SPECULATE
from tiny_study import CONTEXT_LENGTH, configuration, tiny_pair
from transformers import MixtralConfig

from specstudy import open_run
from specstudy.config import ModelsConfig, StudyConfig
from specstudy.errors import UserError
from specstudy.models.load import Pair
from specstudy.models.routers import watched_routers
from specstudy.tables.run import Run

N_EXPERTS, N_CHOSEN, GAMMAS = 4, 2, (1, 3)


def mixture_pair() -> Pair:
    pair = tiny_pair()
    n = pair.verifier.vocabulary
    config = MixtralConfig(
        vocab_size=n,
        hidden_size=32,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=N_EXPERTS,
        num_experts_per_tok=N_CHOSEN,
        max_position_embeddings=CONTEXT_LENGTH,
        initializer_range=0.3,
    )
    return replace(pair, verifier=tiny.language_model(config, 0, n))


@pytest.fixture(scope="module")
def pair() -> Pair:
    return mixture_pair()


@pytest.fixture(scope="module")
def run(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("routing")
    config = configuration(path, {"prompt-0": "Say one.", "prompt-1": "Say two."}, f"spec.gamma={list(GAMMAS)}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workflow, "find_models", lambda config: lambda: pair)
        assert workflow.run(config, [DECODE, SPECULATE, ROUTING]) == 0
        return open_run(workflow.run_path_of(config))


def prompt_token_ids(run: Run, pair: Pair, prompt_id: str) -> list[int]:
    n_tokens = run.decode_runs.set_index("prompt_id")["n_prompt_tokens"]
    text = f"<|im_start|>user\nSay {['one', 'two'][int(prompt_id[-1])]}.<|im_end|>\n<|im_start|>assistant\n"
    ids = pair.tokenizer(text)["input_ids"]
    assert len(ids) == n_tokens[prompt_id]
    return list(ids)


def test_decoded_tokens_are_those_of_the_decode_stage(run: Run) -> None:
    tokens, decoded = run.routing_tokens, run.decode_tokens
    of_decode = tokens[(tokens["source"] == "decode") & (tokens["layer"] == 0)]
    assert len(of_decode) == len(decoded)
    fed = of_decode[of_decode["index"] > 0][["prompt_id", "index", "token_id"]].to_numpy().tolist()
    before = decoded.assign(index=decoded["step"] + 1)
    expected = before[["prompt_id", "index", "token_id"]].merge(of_decode[["prompt_id", "index"]])
    assert fed == expected.to_numpy().tolist()


def test_outcomes_are_those_of_the_speculation_stage(run: Run) -> None:
    tokens, drafted = run.routing_tokens, run.spec_tokens
    drafted = drafted[drafted["kind"] == "draft"]
    for layer in (0, 1):
        fed = tokens[(tokens["source"] == "verify") & (tokens["layer"] == layer) & (tokens["index"] > 0)]
        fed = fed.assign(index=fed["index"] - 1)
        keys = ["prompt_id", "gamma", "round", "index", "token_id", "outcome"]
        a, b = (frame[keys].astype(str).sort_values(keys).reset_index(drop=True) for frame in (fed, drafted))
        pd.testing.assert_frame_equal(a, b)
    assert {"accepted", "rejected"} <= set(tokens["outcome"].dropna())


@torch.inference_mode()
def test_verified_tokens_are_routed_as_an_uncached_pass_routes_them(run: Run, pair: Pair) -> None:
    tokens = run.routing_tokens.query("source == 'verify' and gamma == 3 and layer == 1")
    drafted = run.spec_tokens.query("gamma == 3")
    for prompt_id, rows in tokens.groupby("prompt_id"):
        text = prompt_token_ids(run, pair, str(prompt_id))
        for index, passed in rows.groupby("round"):
            fed = passed.sort_values("index")
            ids = [*text, *fed["token_id"].tolist()[1:]]
            assert fed["token_id"].tolist()[0] == text[-1]
            with watched_routers(pair.verifier.module, "tiny") as watch:
                pair.verifier.module(input_ids=torch.tensor([ids]), use_cache=False)
                expected = watch.take(1)
            assert [list(e) for e in fed["experts"]] == expected.experts[1, -len(fed) :].tolist()
            emitted = drafted[(drafted["prompt_id"] == prompt_id) & (drafted["round"] == index) & drafted["emitted"]]
            text += emitted.sort_values("index")["token_id"].tolist()


def test_layers_say_what_their_experts_weigh(run: Run) -> None:
    layers = run.routing_layers
    assert len(layers) == 2 * 2 * (1 + len(GAMMAS))
    assert set(layers["n_experts"]) == {N_EXPERTS}
    assert set(layers["n_chosen"]) == {N_CHOSEN}
    assert set(layers["expert_bytes"]) == {3 * 32 * 24 * 4}
    assert all(sum(p) == pytest.approx(1, abs=1e-5) for p in layers["mean_probability"])


def test_a_verifier_without_experts_is_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "run", lambda *_, **__: pytest.fail("work was begun"))
    with pytest.raises(UserError, match=r"models.verifier=embedded:smollm2 has no experts to route to"):
        routing.routing(StudyConfig(models=ModelsConfig()))
