"""The routing stage on tiny random mixtures of experts, against the other stages and uncached passes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from tiny_mixtures import HIDDEN, N_CHOSEN, N_EXPERTS, families, mixture_pair, sizes, tiny_vocabulary
from tiny_study import REFUSED_WORD, configuration, tiny_pair
from transformers import MixtralConfig, PreTrainedConfig

from specstudy import open_run
from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.join import conditions_measured, prompt_frame
from specstudy.analysis.routing.study import RoutingAnalysis, analyze_routing
from specstudy.config import ModelsConfig, StudyConfig
from specstudy.errors import UserError
from specstudy.models.load import Pair
from specstudy.models.routers import watched_routers
from specstudy.running import studies, workflow
from specstudy.running.stages.decode import DECODE
from specstudy.running.stages.prefill import PREFILL
from specstudy.running.stages.routing import ROUTING
from specstudy.running.stages.speculate import SPECULATE
from specstudy.tables.run import Run

STAGES = [PREFILL, DECODE, replace(SPECULATE, check=None), ROUTING]
WORDS = ["one", "two", "three"]
PROMPTS = {f"prompt-{i}": f"Say {word}." for i, word in enumerate(WORDS)}
GAMMAS = (1, 3)
KEYS = ["prompt_id", "gamma", "round"]


def mixtral(n_chosen: int) -> MixtralConfig:
    return MixtralConfig(**sizes(tiny_vocabulary(), num_experts_per_tok=n_chosen), num_local_experts=N_EXPERTS)


@dataclass(frozen=True)
class Case:
    config: PreTrainedConfig
    words: tuple[str, ...] = ()
    n_chosen: int = N_CHOSEN


CASES = {
    **{name: Case(config) for name, config in families(tiny_vocabulary()).items()},
    "one expert a token": Case(mixtral(1), n_chosen=1),
    "all experts, greedy": Case(mixtral(N_EXPERTS), ("decode.temperature=0",), N_EXPERTS),
    "prompt lookup": Case(mixtral(2), ("spec.proposer=prompt_lookup",), 2),
    "early exit": Case(mixtral(2), ("spec.proposer=early_exit", "spec.exit_layers=1"), 2),
    "entropy stop": Case(mixtral(2), ("spec.stop=entropy", "spec.stop_threshold=0.85"), 2),
    "bound stop": Case(mixtral(2), ("spec.stop=bound", "spec.stop_threshold=0.1"), 2),
    "longer drafts than answers": Case(mixtral(2), ("spec.gamma=[1,3,9]",), 2),
}


def studied(path: Path, pair: Pair, *words: str, prompts: dict[str, str] = PROMPTS, code: int = 0) -> Run:
    given = [f"spec.gamma={list(GAMMAS)}", "execution.threads=1", *words]
    config = configuration(path, prompts, *given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workflow, "find_models", lambda config: lambda: pair)
        assert workflow.run(config, STAGES) == code
    return open_run(workflow.run_path_of(config))


@dataclass(frozen=True)
class Studied:
    case: Case
    pair: Pair
    run: Run


@pytest.fixture(scope="module", params=CASES)
def studied_case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Studied:
    case = CASES[request.param]
    pair = mixture_pair(case.config)
    return Studied(case, pair, studied(tmp_path_factory.mktemp("routing"), pair, *case.words))


def prompt_token_ids(found: Studied, prompt_id: str) -> list[int]:
    n_tokens = found.run.decode_runs.set_index("prompt_id")["n_prompt_tokens"]
    text = f"<|im_start|>user\nSay {WORDS[int(prompt_id[-1])]}.<|im_end|>\n<|im_start|>assistant\n"
    ids = found.pair.tokenizer(text)["input_ids"]
    assert len(ids) == n_tokens[prompt_id]
    return list(ids)


def test_decoded_tokens_are_those_of_the_decode_stage(studied_case: Studied) -> None:
    tokens, decoded = studied_case.run.routing_tokens, studied_case.run.decode_tokens
    of_decode = tokens[(tokens["source"] == "decode") & (tokens["layer"] == tokens["layer"].max())]
    assert len(of_decode) == len(decoded)
    fed = of_decode[of_decode["index"] > 0][["prompt_id", "index", "token_id"]].to_numpy().tolist()
    before = decoded.assign(index=decoded["step"] + 1)
    expected = before[["prompt_id", "index", "token_id"]].merge(of_decode[["prompt_id", "index"]])
    assert fed == expected.to_numpy().tolist()


def test_outcomes_are_those_of_the_speculation_stage(studied_case: Studied) -> None:
    tokens, drafted = studied_case.run.routing_tokens, studied_case.run.spec_tokens
    drafted = drafted[drafted["kind"] == "draft"]
    for layer in tokens["layer"].unique():
        fed = tokens[(tokens["source"] == "verify") & (tokens["layer"] == layer) & (tokens["index"] > 0)]
        fed = fed.assign(index=fed["index"] - 1)
        keys = [*KEYS, "index", "token_id", "outcome"]
        a, b = (frame[keys].astype(str).sort_values(keys).reset_index(drop=True) for frame in (fed, drafted))
        pd.testing.assert_frame_equal(a, b)
    rounds = studied_case.run.spec_rounds[KEYS].astype(int, errors="ignore").to_numpy().tolist()
    passes = tokens[tokens["source"] == "verify"][KEYS].drop_duplicates().to_numpy().tolist()
    assert sorted(passes) == sorted(rounds)


@torch.inference_mode()
def test_verified_tokens_are_routed_as_an_uncached_pass_routes_them(studied_case: Studied) -> None:
    pair, run = studied_case.pair, studied_case.run
    verified = run.routing_tokens.query("source == 'verify' and gamma == 3")
    place, tokens = verified["layer"].nunique() - 1, verified[verified["layer"] == verified["layer"].max()]
    drafted = run.spec_tokens.query("gamma == 3")
    assert len(tokens)
    for prompt_id, rows in tokens.groupby("prompt_id"):
        text = prompt_token_ids(studied_case, str(prompt_id))
        for index, passed in rows.groupby("round"):
            fed = passed.sort_values("index")
            ids = [*text, *fed["token_id"].tolist()[1:]]
            assert fed["token_id"].tolist()[0] == text[-1]
            with watched_routers(pair.verifier.module, "tiny") as watch:
                pair.verifier.module(input_ids=torch.tensor([ids]), use_cache=False)
                expected = watch.take(1)
            assert [list(e) for e in fed["experts"]] == expected.experts[place, -len(fed) :].tolist()
            np.testing.assert_allclose(np.stack(fed["gates"]), expected.gates[place, -len(fed) :], atol=1e-4)
            emitted = drafted[(drafted["prompt_id"] == prompt_id) & (drafted["round"] == index) & drafted["emitted"]]
            text += emitted.sort_values("index")["token_id"].tolist()


def test_layers_say_what_their_experts_weigh(studied_case: Studied) -> None:
    layers = studied_case.run.routing_layers
    biases = 4 * (2 * 24 + HIDDEN) if studied_case.case.config.model_type == "gpt_oss" else 0
    assert set(layers["n_experts"]) == {N_EXPERTS}
    assert set(layers["n_chosen"]) == {studied_case.case.n_chosen}
    assert set(layers["expert_bytes"]) == {3 * HIDDEN * 24 * 4 + biases}
    assert all(sum(p) == pytest.approx(1, abs=1e-5) for p in layers["mean_probability"])


def analysed(run: Run) -> RoutingAnalysis:
    tables = {name: run.table(name) for name in run.tables}
    conditions = conditions_measured(tables)
    found = analyze_routing(
        tables, prompt_frame(tables), conditions, conditions[-1], AnalysisSettings(bootstrap_samples=50)
    )
    assert found is not None
    return found


def test_measures_of_a_study(studied_case: Studied) -> None:
    found, k = analysed(studied_case.run), studied_case.case.n_chosen
    assert found.routing_windows
    for row in found.routing_windows:
        assert row.estimate is not None
        assert k <= row.estimate <= min(N_EXPERTS, k * row.window) + 1e-9
    for measure in found.routing_measures:
        assert measure.estimate is not None or measure.null_reason
    names = ("overlap_with_previous", "overlap_by_popularity", "overlap_temporal")
    overlap, by_popularity, temporal = (found.measure(name).estimate for name in names)
    assert overlap is not None
    assert by_popularity is not None
    assert temporal is not None
    assert overlap == pytest.approx(by_popularity + temporal)
    assert {cost.gamma for cost in found.routing_costs} <= set(GAMMAS), "no pass is longer than the answer"
    if k == N_EXPERTS:
        assert {row.estimate for row in found.routing_windows} == {N_EXPERTS}
        assert [row.pairwise for row in found.over_layers("decode")] == pytest.approx([N_EXPERTS] * 5)
        assert overlap == 1
        assert {cost.by_bytes for cost in found.routing_costs} == {1.0}


def test_predictions_of_speed_are_of_full_drafts_only(studied_case: Studied) -> None:
    """The formula takes gamma tokens a draft; a rule that ends drafts early makes it say nothing."""
    fully = not {"spec.proposer=prompt_lookup", "spec.stop=entropy", "spec.stop=bound"} & {*studied_case.case.words}
    costs = [cost for cost in analysed(studied_case.run).routing_costs if cost.batch == 1]
    for cost in costs:
        assert (cost.speedup_by_bytes is not None) == (cost.speedup_by_clock is not None) == fully


def test_a_prompt_that_fails_leaves_the_others(tmp_path: Path) -> None:
    prompts = {**PROMPTS, "prompt-9": f"Say {REFUSED_WORD}."}
    run = studied(tmp_path, mixture_pair(mixtral(2)), prompts=prompts, code=1)
    assert set(run.routing_tokens["prompt_id"]) == set(PROMPTS)
    assert run.errors["prompt_id"].tolist() == ["prompt-9"]
    assert {row.n_prompts for row in analysed(run).over_layers("decode")} == {len(PROMPTS)}


def test_answers_of_one_token(tmp_path: Path) -> None:
    run = studied(tmp_path, mixture_pair(mixtral(2)), "decode.max_new_tokens=1")
    found = analysed(run)
    assert not found.routing_windows
    assert not found.routing_costs
    assert found.measure("overlap_with_previous").null_reason == "not defined for these prompts"
    assert found.measure("gate_entropy_bits").estimate is not None


def test_a_mixture_that_drafts_for_itself_is_watched_as_verifier_alone(tmp_path: Path) -> None:
    pair = mixture_pair(mixtral(2))
    run = studied(tmp_path, replace(pair, draft=pair.verifier), "decode.temperature=0")
    assert set(run.routing_tokens["outcome"].dropna()) == {"accepted"}
    passes = run.routing_tokens.query("source == 'verify' and gamma == 3 and layer == 0")
    assert passes.groupby(["prompt_id", "round"]).size().max() == 4


def test_a_mixture_drafts_for_a_dense_verifier(tmp_path: Path) -> None:
    mixture = mixture_pair(mixtral(2))
    config = configuration(tmp_path, PROMPTS, "execution.threads=1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workflow, "find_models", lambda config: lambda: replace(tiny_pair(), draft=mixture.verifier))
        assert workflow.run(config, [SPECULATE]) == 0
    run = open_run(workflow.run_path_of(config))
    assert run.manifest["self_checks"]["speculate"]["passed"]
    assert set(run.spec_runs["prompt_id"]) == set(PROMPTS)


def test_a_verifier_without_experts_is_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "run", lambda *_, **__: pytest.fail("work was begun"))
    with pytest.raises(UserError, match=r"embedded:smollm2 has no experts"):
        studies.routing(StudyConfig(models=ModelsConfig()))


def test_experts_of_the_draft_alone_are_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "run", lambda *_, **__: pytest.fail("work was begun"))
    with pytest.raises(UserError, match=r"embedded:smollm2 has no experts"):
        studies.routing(StudyConfig(models=ModelsConfig(draft="embedded:smollm2-moe")))
