"""The analysis of routing on planted sequences whose measures are known in closed form."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from specstudy import routing_formulas as formulas
from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.routing.study import RoutingAnalysis, analyze_routing
from specstudy.condition import STUDY_CONDITION, Condition
from specstudy.measure.designs import assignments
from specstudy.records import RoutingCost

N, K, N_TOKENS, N_PROMPTS = 8, 2, 400, 6
EXPERT_BYTES, OTHER_BYTES = 100.0, 1000.0
SETTINGS = AnalysisSettings(bootstrap_samples=200)
LAYERS = (1, 2)


def rows(chosen: NDArray[np.int64], prompt: int, layer: int, **more: Any) -> list[dict[str, Any]]:
    keys = {"prompt_id": f"p{prompt}", "category": "c", "repetition": 0, "layer": layer}
    nothing = dict.fromkeys(("proposer", "stop", "stop_threshold", "gamma", "round", "outcome"))
    return [
        {**keys, **nothing, "source": "decode", "temperature": 0.7, "top_p": 0.9, "index": step, "token_id": 0}
        | {"experts": list(experts), "gates": [0.5] * K, "gate_entropy_bits": float(step % 7)}
        | {name: values[step] if isinstance(values, list) else values for name, values in more.items()}
        for step, experts in enumerate(chosen)
    ]


def tables_of(sequences: list[list[NDArray[np.int64]]], verified: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Answers as sequences[prompt][layer], router probabilities as often as experts are chosen."""
    tokens, layers = list(verified or []), []
    for prompt, by_layer in enumerate(sequences):
        for layer, chosen in zip(LAYERS, by_layer, strict=True):
            tokens += rows(chosen, prompt, layer)
            share = formulas.on_off(chosen, N).mean(0) / K
            row = rows(chosen[:1], prompt, layer)[0]
            layers.append(row | {"n_experts": N, "n_chosen": K, "n_tokens": len(chosen), "mean_probability": share})
            layers[-1] |= {"expert_bytes": EXPERT_BYTES, "other_bytes": OTHER_BYTES}
    return {"routing_tokens": pd.DataFrame(tokens), "routing_layers": pd.DataFrame(layers)}


def analysed(
    tables: dict[str, Any], gammas: tuple[Condition, ...] = (), health: float | list[float] = np.nan
) -> RoutingAnalysis:
    prompts = pd.DataFrame({"context_health_soft": health}, index=[f"p{i}" for i in range(N_PROMPTS)])
    result = analyze_routing(tables, prompts, gammas, gammas[0] if gammas else None, SETTINGS)
    assert result is not None
    return result


def planted(skew: float, overlap: float) -> RoutingAnalysis:
    rng = np.random.default_rng(5)
    chains = [[assignments(N, K, skew, overlap, N_TOKENS, rng) for _ in LAYERS] for _ in range(N_PROMPTS)]
    return analysed(tables_of(chains))


def test_independent_uniform_tokens_are_all_explained_by_every_baseline() -> None:
    found = planted(skew=0.0, overlap=0.0)
    for row in found.over_layers("decode"):
        assert row.uniform == pytest.approx(formulas.expected_distinct_uniform(N, K, row.window))
        for value in (row.estimate, row.independent, row.pairwise):
            assert value == pytest.approx(row.uniform, abs=0.06)
    assert found.measure("overlap_with_previous").estimate == pytest.approx(K / N, abs=0.01)
    assert found.measure("overlap_temporal").estimate == pytest.approx(0.0, abs=0.01)
    assert found.measure("load_variation").estimate < 0.1
    assert found.measure("switch_balance").estimate == pytest.approx(1.0, abs=0.01)


def test_popularity_alone_is_told_from_time() -> None:
    found = planted(skew=1.0, overlap=0.0)
    overlap, explained = found.measure("overlap_with_previous"), found.measure("overlap_by_popularity")
    assert explained.estimate is not None
    assert explained.estimate > K / N + 0.08
    assert overlap.estimate == pytest.approx(explained.estimate, abs=0.02)
    widest = found.over_layers("decode")[-1]
    assert widest.independent < widest.uniform - 0.3
    assert widest.estimate == pytest.approx(widest.independent, abs=0.12)


def test_every_layer_has_a_popularity_of_its_own() -> None:
    rng = np.random.default_rng(6)
    chains = [[assignments(N, K, skew, 0.0, N_TOKENS, rng) for skew in (0.0, 2.0)] for _ in range(N_PROMPTS)]
    found = analysed(tables_of(chains))
    even, skewed = ([row for row in found.routing_windows if row.layer == layer] for layer in LAYERS)
    for a, b in zip(even, skewed, strict=True):
        assert a.estimate == pytest.approx(a.independent, abs=0.1)
        assert b.estimate == pytest.approx(b.independent, abs=0.1)
        assert b.independent < a.independent - 0.5
    (both,) = (row for row in found.over_layers("decode") if row.window == 4)
    assert both.independent == pytest.approx((even[2].independent + skewed[2].independent) / 2)
    by_layer = {row.layer: row.estimate for row in found.routing_measures if row.measure == "load_variation"}
    assert by_layer[LAYERS[0]] < 0.1
    assert by_layer[LAYERS[1]] > 0.8
    assert by_layer[None] == pytest.approx((by_layer[LAYERS[0]] + by_layer[LAYERS[1]]) / 2)


def test_a_chain_with_known_overlap() -> None:
    """One expert a token: on or off is a chain of its own for each expert, so its pairs decide the whole joint."""
    keep, rng = 0.6, np.random.default_rng(3)
    chain = assignments(N, 1, 0.0, keep, 20_000, rng)
    used = formulas.on_off(chain, N)
    stay = keep + (1 - keep) / N
    assert formulas.overlap_with_previous(used).mean() == pytest.approx(stay, abs=0.01)
    off_off = 1 - (1 - stay) / (N - 1)  # an expert that is off stays off unless it is the one that is drawn
    for window in (2, 4, 8):
        expected = N * (1 - (1 - 1 / N) * off_off ** (window - 1))
        assert formulas.distinct_experts(used, window).mean() == pytest.approx(expected, abs=0.03)
        views = np.moveaxis(np.lib.stride_tricks.sliding_window_view(used, window, axis=0), -1, 1)
        never, _ = formulas.never_on_in_windows(views, 1e-6, 500)
        assert (1 - never).sum() == pytest.approx(expected, abs=0.03)


def test_time_is_told_from_popularity() -> None:
    found = planted(skew=0.0, overlap=0.5)
    temporal = found.measure("overlap_temporal")
    assert found.measure("overlap_by_popularity").estimate == pytest.approx(K / N, abs=0.01)
    # Both kept, one kept (the other drawn again from the seven left), none kept (both drawn anew).
    overlap = 0.25 * 1 + 0.5 * (1 + 1 / 7) / 2 + 0.25 * K / N
    assert temporal.estimate == pytest.approx(overlap - K / N, abs=0.02)
    assert temporal.ci_low is not None
    assert temporal.ci_low > 0.2
    widest = found.over_layers("decode")[-1]
    assert widest.estimate < widest.independent - 0.5
    assert widest.pairwise == pytest.approx(widest.estimate, abs=0.1)


def test_gate_entropy_and_overlap_follow_the_entropy_of_the_token_computed_from_the_same_pass() -> None:
    """Token entropy is that of the step itself: it rises with gate entropy and falls with overlap in every answer."""
    rng, n_steps = np.random.default_rng(4), 40
    entropies = rng.permutation(n_steps).astype(np.float64)
    # The higher the entropy of a step, the fewer of the four experts before are kept.
    chain = [np.arange(4)]
    for bits in entropies[1:]:
        kept = 4 - int(bits * 5 / n_steps)
        others = np.setdiff1d(np.arange(12), chain[-1])
        chain.append(np.concatenate([rng.permutation(chain[-1])[:kept], rng.permutation(others)[: 4 - kept]]))
    tokens, layers, decoded = [], [], []
    for prompt in range(N_PROMPTS):
        for layer in LAYERS:
            tokens += rows(
                np.array(chain), prompt, layer, gate_entropy_bits=[float(prompt + bits) for bits in entropies]
            )
            layers += rows(np.array(chain[:1]), prompt, layer, n_experts=12, n_chosen=4, n_tokens=n_steps)
            layers[-1] |= {"expert_bytes": EXPERT_BYTES, "other_bytes": OTHER_BYTES, "mean_probability": [1 / 12] * 12}
        keys = {"prompt_id": f"p{prompt}", "repetition": 0}
        decoded += [{**keys, "step": step, "entropy_bits": bits} for step, bits in enumerate(entropies)]
    tables = {name: pd.DataFrame(v) for name, v in (("routing_tokens", tokens), ("routing_layers", layers))}
    found = analysed({**tables, "decode_tokens": pd.DataFrame(decoded)}, health=[9.0, 8.0, 7.0, 6.0, 5.0, 4.0])
    assert found.measure("gate_entropy_bits_with_token_entropy").estimate == pytest.approx(1.0)
    overlap = found.measure("overlap_with_token_entropy").estimate
    assert overlap is not None
    assert overlap < -0.9  # entropies that keep as many experts are tied
    # Mean gate entropy rises from prompt to prompt as health falls; overlap is the same in all of them.
    assert found.measure("gate_entropy_bits_with_context_health").estimate == pytest.approx(-1.0)
    constant = found.measure("overlap_with_context_health")
    assert constant.estimate is None
    assert constant.null_reason


def test_intervals_need_three_prompts_and_say_so() -> None:
    rng = np.random.default_rng(1)
    tables = tables_of([[assignments(N, K, 0.0, 0.0, 20, rng) for _ in LAYERS] for _ in range(2)])
    row = analysed(tables).measure("overlap_with_previous")
    assert row.estimate is not None
    assert row.ci_low is None
    assert row.null_reason == "2 independent prompts; an interval needs 3"


GAMMA = Condition(2, "model", "none", 0.7, 0.9, None)


def verified(entropies: dict[str, float]) -> list[dict[str, Any]]:
    """Ten full passes a prompt: expert pairs (0, 1), (2, 3), (2, 3), so four distinct; the last token is rejected."""
    found = []
    for prompt in range(N_PROMPTS):
        for number in range(10):
            for layer in LAYERS:
                bits = [0.0, entropies["accepted"] + number, entropies["rejected"] + number]
                found += rows(
                    np.array([[0, 1], [2, 3], [2, 3]]),
                    prompt,
                    layer,
                    **{**asdict(GAMMA), "source": "verify", "round": number},
                    outcome=[None, "accepted", "rejected"],
                    gate_entropy_bits=bits,
                )
    return found


def test_accepted_against_rejected_and_the_cost_of_a_pass() -> None:
    rng = np.random.default_rng(2)
    answers = [[assignments(N, K, 0.0, 0.0, 60, rng) for _ in LAYERS] for _ in range(N_PROMPTS)]
    tables = tables_of(answers, verified({"accepted": 1.0, "rejected": 3.0}))
    runs = [
        {
            **asdict(GAMMA),
            "prompt_id": f"p{i}",
            "alpha": 0.5,
            "cost_ratio_time": 0.1,
            "target_efficiency": 0.8 + i / 100,
        }
        | {"speedup": 1.0, "theoretical_speedup_full": 0.9, "repetition": 0, "category": "c"}
        for i in range(N_PROMPTS)
    ]
    tables["spec_runs"] = pd.DataFrame(runs)
    found = analysed(tables, (GAMMA,))
    spread = np.repeat(np.arange(10.0), N_PROMPTS)
    d = (1.0 - 3.0) / spread.std(ddof=1)
    assert found.measure("accepted_minus_rejected_gate_entropy_bits").estimate == pytest.approx(d)
    # An accepted token shares nothing with the one before and a rejected one all, without any spread to measure it in.
    assert found.measure("accepted_minus_rejected_overlap").null_reason == "not defined for these prompts"
    (one,) = found.costs(1)
    assert (one.distinct_one, one.distinct_pass) == (pytest.approx(K), pytest.approx(4))
    assert one.by_bytes == pytest.approx((OTHER_BYTES + 2 * K * EXPERT_BYTES) / (OTHER_BYTES + 2 * 4 * EXPERT_BYTES))
    assert one.estimate == pytest.approx(0.825)
    assert one.speedup_by_bytes == pytest.approx(1.75 / (0.2 + 1 / one.by_bytes))
    uniform = formulas.expected_distinct_uniform(N, K, 3)
    assert one.by_bytes_uniform == pytest.approx(1400 / (1000 + 200 * uniform))
    many = found.costs(32)[0]
    # Passes that all use the same four experts read no more for 32 sequences; one token of each reads nearly all.
    assert many.distinct_pass == pytest.approx(4)
    assert many.by_bytes == pytest.approx((1000 + 200 * N) / (1000 + 200 * 4), abs=0.01)
    assert many.estimate is None
    assert many.null_reason == "timed for one sequence at a time only"


def test_repetitions_of_a_prompt_are_one_value_of_the_clock() -> None:
    rng = np.random.default_rng(2)
    answers = [[assignments(N, K, 0.0, 0.0, 60, rng) for _ in LAYERS] for _ in range(N_PROMPTS)]
    tables = tables_of(answers, verified({"accepted": 1.0, "rejected": 3.0}))
    efficiencies = {f"p{i}": 0.8 + i / 100 for i in range(N_PROMPTS)}

    def cost(n_repetitions: int) -> RoutingCost:
        run = {**asdict(GAMMA), "category": "c", "alpha": 0.5, "cost_ratio_time": 0.1, "theoretical_speedup_full": None}
        tables["spec_runs"] = pd.DataFrame(
            {**run, "prompt_id": name, "repetition": number, "target_efficiency": value + shift, "speedup": 1 + value}
            for name, value in efficiencies.items()
            # The first prompt is measured more often, and its repetitions differ about its value.
            for number, shift in enumerate([-0.1, 0.1] * n_repetitions if name == "p0" else [0.0])
        )
        return analysed(tables, (GAMMA,)).costs(1)[0]

    once = cost(1)
    assert once.estimate == pytest.approx(0.825)
    assert once.speedup == pytest.approx(1.825)
    assert once.speedup_by_bytes is once.speedup_by_clock is None, "no theory of drafts that end early"
    many = cost(4)
    assert (many.estimate, many.ci_low, many.ci_high) == pytest.approx(
        (once.estimate, once.ci_low, once.ci_high), abs=0.002
    )


def test_other_settings_and_no_routing() -> None:
    assert analyze_routing({}, pd.DataFrame(), (), None, SETTINGS) is None
    rng = np.random.default_rng(2)
    answers = [[assignments(N, K, 0.0, 0.0, 20, rng) for _ in LAYERS] for _ in range(N_PROMPTS)]
    assert analysed(tables_of(answers), (STUDY_CONDITION,)).routing_costs == []
