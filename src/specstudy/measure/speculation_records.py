"""The records of a speculative generation, beside the verifier alone on the same prompt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from specstudy import formulas
from specstudy.clock import load_average, now
from specstudy.measure.attention_while_writing import attention_to_text, step_columns
from specstudy.measure.decode import Generation, GenerationSettings, generate
from specstudy.measure.prompt_lookup import PromptLookup
from specstudy.measure.proposers import AdaptiveStop, ModelProposer, Proposer, bound_stop, entropy_stop
from specstudy.measure.speculative import Round, SpeculativeGeneration, SpeculativeLoop
from specstudy.measure.timing import Costs, Theory, measured_costs, speedup_from_steps, step_times, theory
from specstudy.models.cache import CachedModel
from specstudy.models.early_exit import first_layers
from specstudy.models.load import Pair
from specstudy.models.tokens import text_of, token_text
from specstudy.prompts.prompt import RenderedPrompt
from specstudy.records import SpecAttentionStep, SpecRound, SpecRun, SpecToken


@dataclass(frozen=True)
class SpeculationSettings:
    """One speculative configuration. `stop_threshold` is None where `stop` is none. Without `baseline` the verifier
    alone is not timed, and what is relative to it is null."""

    generation: GenerationSettings
    gamma: int
    proposer: str
    stop: str
    stop_threshold: float | None
    exit_layers: int = 2
    lookup_tokens: int = 3
    baseline: bool = True

    @property
    def drafts_fully(self) -> bool:
        """Whether a draft always holds gamma tokens where so many are left, as the speed-up formulas assume."""
        return self.stop == "none" and self.proposer != "prompt_lookup"

    @property
    def keys(self) -> dict[str, Any]:
        """What every row about a generation with these settings tells of them."""
        return {
            "proposer": self.proposer,
            "stop": self.stop,
            "stop_threshold": self.stop_threshold,
            "temperature": self.generation.warp.temperature,
            "top_p": self.generation.warp.top_p,
            "gamma": self.gamma,
        }


def measure_speculation(
    pair: Pair,
    rendered: RenderedPrompt,
    settings: SpeculationSettings,
    repetition: int,
    rng: np.random.Generator,
    baseline_rng: np.random.Generator,
) -> dict[str, list[object]]:
    """All speculation records of one generation: `spec_tokens`, `spec_rounds`, `spec_runs`, `spec_attention_steps`.

    The verifier alone runs right before it on the same prompt, so that both see the same machine.
    """
    machine = {"measured_at": now(), "load_average": load_average(), "threads": torch.get_num_threads()}
    baseline = None
    if settings.baseline:
        baseline = generate(pair.verifier, rendered.token_ids, settings.generation, baseline_rng)
    proposer = make_proposer(pair, settings)
    loop = SpeculativeLoop(pair.verifier, proposer, rendered.token_ids, settings.generation, settings.gamma, rng)
    generation = loop.run()
    keys = {**rendered.keys, **settings.keys, "repetition": repetition}
    run = {**keys, **machine}
    most_bits = float(np.log2(pair.verifier.n_emittable))
    return {
        "spec_tokens": [
            record
            for index, r in enumerate(generation.rounds)
            for record in _token_records(keys, pair, index, r, most_bits)
        ],
        "spec_rounds": [_round_record(keys, index, r) for index, r in enumerate(generation.rounds)],
        "spec_runs": [_run_record(run, pair, proposer, settings, baseline, generation)],
        "spec_attention_steps": _attention_records(keys, loop.verifier, rendered, generation),
    }


def make_proposer(pair: Pair, settings: SpeculationSettings) -> Proposer:
    """Who drafts, by its name in the settings."""
    if settings.proposer == "prompt_lookup":
        return PromptLookup(pair.verifier.vocabulary, settings.lookup_tokens)
    model = first_layers(pair.verifier, settings.exit_layers) if settings.proposer == "early_exit" else pair.draft
    return ModelProposer(model, _stop(pair, settings))


def _stop(pair: Pair, settings: SpeculationSettings) -> AdaptiveStop | None:
    if settings.stop == "none":
        return None
    if settings.stop_threshold is None:
        raise ValueError(f"stop rule {settings.stop} without a threshold")
    if settings.stop == "bound":
        return bound_stop(settings.stop_threshold)
    return entropy_stop(settings.stop_threshold, pair.draft.n_emittable)


def _token_records(keys: dict[str, Any], pair: Pair, index: int, r: Round, most_bits: float) -> Iterator[SpecToken]:
    d = r.drafted
    for i in range(r.n_proposed):
        tested = i < r.n_tested
        token_id = int(d["token_id"][i])
        draft_bits, verifier_bits = float(d["draft_entropy_bits"][i]), float(d["verifier_entropy_bits"][i])
        yield SpecToken(
            **keys,
            round=index,
            index=i,
            kind="draft",
            outcome="accepted" if i < r.n_accepted else "rejected" if tested else "untested",
            emitted=i < r.n_accepted,
            token_id=token_id,
            token=token_text(pair.tokenizer, token_id),
            p_draft=float(d["q"][i]),
            p_verifier=float(d["p"][i]) if tested else None,
            accept_prob=float(d["accept_prob"][i]) if tested else None,
            expected_accept=float(d["expected_accept"][i]) if tested else None,
            draft_entropy_bits=draft_bits,
            draft_entropy_norm=draft_bits / most_bits,
            draft_sampling_entropy_bits=float(d["draft_sampling_entropy_bits"][i]),
            draft_top_prob=float(d["draft_top_prob"][i]),
            draft_top_margin=float(d["draft_top_margin"][i]),
            verifier_entropy_bits=verifier_bits if tested else None,
            verifier_entropy_norm=verifier_bits / most_bits if tested else None,
        )
    if r.final_id is not None:
        yield SpecToken(
            **keys,
            round=index,
            index=r.n_proposed,
            kind="correction" if r.n_accepted < r.n_proposed else "bonus",
            outcome=None,
            emitted=True,
            token_id=r.final_id,
            token=token_text(pair.tokenizer, r.final_id),
            p_draft=None,
            p_verifier=r.final_probability,
            accept_prob=None,
            expected_accept=None,
            draft_entropy_bits=None,
            draft_entropy_norm=None,
            draft_sampling_entropy_bits=None,
            draft_top_prob=None,
            draft_top_margin=None,
            verifier_entropy_bits=r.final_entropy_bits,
            verifier_entropy_norm=r.final_entropy_bits / most_bits,
        )


def _attention_records(
    keys: dict[str, Any], verifier: CachedModel, rendered: RenderedPrompt, generation: SpeculativeGeneration
) -> list[object]:
    """Attention of the query behind each token of the answer, which tested the token drafted for that place, if any."""
    sums = attention_to_text(verifier, rendered, generation.token_ids)
    assert sums.steps is not None
    places = ((index, place) for index, r in enumerate(generation.rounds) for place in range(len(r.emitted)))
    return [
        SpecAttentionStep(**keys, round=index, index=place, **columns)
        for (index, place), columns in zip(places, step_columns(sums.steps, rendered), strict=True)
    ]


def _round_record(keys: dict[str, Any], index: int, r: Round) -> SpecRound:
    return SpecRound(
        **keys,
        round=index,
        n_proposed=r.n_proposed,
        n_tested=r.n_tested,
        n_accepted=r.n_accepted,
        n_emitted=len(r.emitted),
        stopped_early=r.stopped_early,
        draft_s=r.draft_s,
        verify_s=r.verify_s,
        overhead_s=r.overhead_s,
    )


def _costs(pair: Pair, proposer: Proposer, gamma: int, baseline: Generation, rounds: list[Round]) -> Costs:
    return measured_costs(
        verifier_step_s=baseline.forward_s,
        draft_s=[r.draft_s for r in rounds],
        n_draft_passes=[r.n_draft_passes for r in rounds],
        n_proposed=[r.n_proposed for r in rounds],
        verify_s=[r.verify_s for r in rounds],
        overhead_s=[r.overhead_s for r in rounds],
        gamma=gamma,
        cost_ratio_flops=_cost_ratio_flops(pair, proposer),
    )


def _cost_ratio_flops(pair: Pair, proposer: Proposer) -> float:
    """FLOPs of drafting a token over those of the verifier's; 0 where no model drafts."""
    if proposer.model is None:
        return 0.0
    return formulas.flops_per_token(proposer.model.dimensions) / formulas.flops_per_token(pair.verifier.dimensions)


def _run_record(
    keys: dict[str, Any],
    pair: Pair,
    proposer: Proposer,
    settings: SpeculationSettings,
    baseline: Generation | None,
    generation: SpeculativeGeneration,
) -> SpecRun:
    rounds = generation.rounds
    n_tokens = len(generation.token_ids)
    n_proposed, n_tested = sum(r.n_proposed for r in rounds), sum(r.n_tested for r in rounds)
    n_accepted = sum(r.n_accepted for r in rounds)
    alpha = formulas.ratio_or_none(n_accepted, n_tested)
    costs = _costs(pair, proposer, settings.gamma, baseline, rounds) if baseline else None
    cost_ratio_flops = _cost_ratio_flops(pair, proposer)
    expected = Theory(None, None, None)
    if settings.drafts_fully and alpha is not None:
        flops_only = Theory(formulas.expected_speedup(alpha, settings.gamma, cost_ratio_flops), None, None)
        expected = theory(alpha, settings.gamma, costs) if costs else flops_only
    draft_s, verify_s, overhead_s = (
        sum(getattr(r, name) for r in rounds) for name in ("draft_s", "verify_s", "overhead_s")
    )
    round_s = draft_s + verify_s + overhead_s
    tokens_per_s = n_tokens / generation.decode_s
    baseline_per_s = len(baseline.steps) / baseline.decode_s if baseline else None
    steps = step_times(baseline.step_s) if baseline else None
    return SpecRun(
        **keys,
        n_tokens=n_tokens,
        n_rounds=len(rounds),
        n_proposed=n_proposed,
        n_tested=n_tested,
        n_accepted=n_accepted,
        acceptance_rate=formulas.ratio_or_none(n_accepted, n_proposed),
        alpha=alpha,
        alpha_expected=formulas.mean_or_none(
            np.concatenate([r.drafted["expected_accept"][: r.n_tested] for r in rounds]).astype(np.float64)
        ),
        tokens_per_round=n_tokens / len(rounds),
        tokens_per_s=tokens_per_s,
        baseline_tokens_per_s=baseline_per_s,
        speedup=tokens_per_s / baseline_per_s if baseline_per_s else None,
        speedup_steps=_speedup_from_steps(steps.median_s, rounds) if steps and settings.drafts_fully else None,
        verifier_step_s=steps.median_s if steps else None,
        verifier_step_p10_s=steps.p10_s if steps else None,
        verifier_step_p90_s=steps.p90_s if steps else None,
        target_efficiency=costs.target_efficiency if costs else None,
        draft_time_share=draft_s / round_s,
        verify_time_share=verify_s / round_s,
        overhead_time_share=overhead_s / round_s,
        cost_ratio_flops=cost_ratio_flops,
        cost_ratio_time=costs.cost_ratio_time if costs else None,
        theoretical_speedup_flops=expected.flops,
        theoretical_speedup_time=expected.time,
        theoretical_speedup_full=expected.full,
        finish_reason=generation.finish_reason,
        text=text_of(pair.tokenizer, generation.token_ids),
        null_reason=_null_reason(settings, n_tested, costs),
    )


def _speedup_from_steps(verifier_step_s: float, rounds: list[Round]) -> float:
    parts = ([getattr(r, f"{part}_s") for r in rounds] for part in ("draft", "verify", "overhead"))
    return speedup_from_steps(verifier_step_s, sum(len(r.emitted) for r in rounds), *parts)


def _null_reason(settings: SpeculationSettings, n_tested: int, costs: Costs | None) -> str | None:
    reasons = [
        (not settings.baseline, "the verifier alone was not timed (spec.baseline=false)"),
        (not settings.drafts_fully, "formulas and medians mean drafts of gamma tokens, and these may be shorter"),
        (not n_tested, "no drafted token was tested"),
        (costs and costs.target_efficiency is None, "no round verified gamma drafted tokens"),
    ]
    return "; ".join(words for holds, words in reasons if holds) or None
