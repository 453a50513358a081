"""The rows of every table, declared once: name, type, unit and meaning of each column. Imports nothing of the project.

A column that may be undefined is optional and holds None, never NaN; `null_reason` says why where the row has one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NewType, TypeVar, dataclass_transform

Row = TypeVar("Row")
Half = NewType("Half", float)
"""A number that is kept in 16 bits."""

TABLES: dict[str, type] = {}
KEY_COLUMNS: dict[str, tuple[str, ...]] = {}
"""Columns whose values no two rows of a table share, and by which these are sorted."""
_CONDITION = ("proposer", "stop", "stop_threshold", "temperature", "top_p", "gamma")
_SPECULATION = ("prompt_id", *_CONDITION, "repetition")
_ROUTING = ("prompt_id", "source", *_CONDITION, "repetition")


def column(meaning: str, unit: str = "") -> Any:
    """A table column: what it means and its unit (empty for counts, ids, names and pure ratios)."""
    return field(metadata={"meaning": meaning, "unit": unit})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(column,))
def row(declared: type[Row]) -> type[Row]:
    """A row, or the columns with which rows of several tables begin."""
    return dataclass(frozen=True, slots=True, kw_only=True)(declared)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(column,))
def table(name: str, key: tuple[str, ...]) -> Callable[[type[Row]], type[Row]]:
    """The row of the table of that name, with its key columns."""

    def add(declared: type[Row]) -> type[Row]:
        TABLES[name], KEY_COLUMNS[name] = row(declared), key
        return TABLES[name]

    return add


def _null_reason() -> Any:
    return column("why measures of this row are null; null when all are defined")


ATTENTION_MEASURES = {
    "sink_mass": "attention to position 0",
    "structural_mass": "attention to the prompt's other structural positions",
    "content_mass": "attention to the prompt's other content positions",
    "own_mass": "attention to the answer's own tokens",
    "lookback_ratio": "a content position's mean attention over the sum of it and that of an answer's token",
    "attention_entropy": "entropy of attention over keys, over log2 of the tokens up to the query's",
    "attention_entropy_rest": "the same without position 0, of what remains",
    "previous_mass": "attention to the token before the query's",
}
"""What is measured of the attention that a query pays, for each head; means over heads are recorded."""
THIRDS = ("first_third", "middle_third", "last_third")
"""Of a model's layers; a measure of one is a column of that name behind the measure's."""


def attends(declared: type[Row]) -> type[Row]:
    """A row with the columns of `ATTENTION_MEASURES`, each over all layers and over each third of them."""
    columns = {"null_reason": ("str | None", _null_reason())}
    for measure, meaning in ATTENTION_MEASURES.items():
        columns[measure] = ("float | None", column(f"{meaning}; mean over the heads of all layers"))
        for third in THIRDS:
            columns[f"{measure}_{third}"] = ("float | None", column(f"the same of the {third.replace('_', ' ')}"))
    for name, (kind, declaration) in columns.items():
        declared.__annotations__[name] = kind
        setattr(declared, name, declaration)
    return declared


SUBSETS = (
    "all",
    "within_category",
    "given_length",
    "within_category_given_length",
    "given_confounders",
    "given_confounders_not_repetitive",
    "within_prompt",
)
"""What tables call the subsets that are no categories: no category has one of these names."""


@row
class PromptRow:
    """What every row about a prompt begins with."""

    prompt_id: str = column("the prompt's id, unique in its set")
    category: str = column("the prompt's category")


@row
class GenerationRow(PromptRow):
    """What every row about a generation of the verifier alone begins with."""

    repetition: int = column("repetition of the same generation with another seed, from 0")


@row
class SpeculationRow(PromptRow):
    """What every row about a speculative generation begins with."""

    proposer: str = column("who drafts")
    stop: str = column("rule that ends a draft early")
    stop_threshold: float | None = column("the rule's threshold; null where stop is none")
    temperature: float = column(
        "sampling temperature of the verifier, and of the draft unless prompt_versions says more"
    )
    top_p: float = column("nucleus of both models")
    gamma: int = column("tokens proposed in a full round")
    repetition: int = column("repetition of the same generation with another seed, from 0")


@row
class EstimateRow:
    """What every row about one estimate begins with."""

    estimate: float | None = column("the estimate; null where it is not defined")
    ci_low: float | None = column("lower end of its bootstrap interval (by prompt)")
    ci_high: float | None = column("upper end of its bootstrap interval (by prompt)")
    null_reason: str | None = column("why the estimate or its interval is null; null when both are defined")


@table("prefill_tokens", key=("prompt_id", "position"))
class PrefillToken(PromptRow):
    """A prompt position."""

    position: int = column("position in the rendered prompt, from 0")
    token_id: int = column("id under the verifier's tokenizer")
    token: str = column("text of the token; a partial UTF-8 character is shown as the replacement character")
    role: str = column("who wrote it: system, user, assistant or template")
    structural_role: str | None = column("part played in the template; null for content")
    is_structural: bool = column("fixed by the template, a BOS, or position 0")
    attention_received: float = column("mean over layers and heads of attention received per query that can see it")
    attention_window: float | None = column("mean attention from the last prompt positions; null inside that window")
    attention_share: float = column("share of all attention paid; sums to 1 over a prompt")
    z_score: float | None = column("robust z-score of ln attention_received over content positions")
    z_window: float | None = column("robust z-score of ln attention_window over content positions")
    is_sink: bool | None = column("z_score over the threshold")
    is_sink_window: bool | None = column("z_window over the threshold")
    null_reason: str | None = _null_reason()


@table("prefill_heads", key=("prompt_id", "layer", "head"))
class PrefillHead(PromptRow):
    """An attention head over one prompt."""

    layer: int = column("layer, from 0")
    head: int = column("query head, from 0")
    first_token_attention: float = column("mean over queries of the attention paid to position 0")
    max_content_attention: float | None = column("largest attention received per visible query by a content position")
    max_content_position: int | None = column("that content position")


@table("prefill_prompts", key=("prompt_id",))
class PrefillPrompt(PromptRow):
    """A prompt, seen at prefill."""

    n_tokens: int = column("tokens of the rendered prompt")
    n_content: int = column("content positions")
    n_sinks_structural: int | None = column("structural positions that are sinks by z_score")
    n_sinks_content: int | None = column("content positions that are sinks by z_score (anomalous sinks)")
    context_health: float | None = column("0 to 10, the score of mayankpallai 2026 on z_score")
    context_health_window: float | None = column("0 to 10, the same score on z_window")
    context_health_soft: float | None = column("0 to 10, 10 * (1 - Hoover index of attention_window over content)")
    structural_share: float = column("sum of attention_share over structural positions")
    boundary_attention_entropy: float | None = column(
        "mean over heads of the last position's attention entropy over log2(n_tokens)"
    )
    sink_rate: float | None = column("share of heads whose mean attention to position 0 is over 0.3")
    prompt_nll_bits: float | None = column("mean negative log2-likelihood of content tokens under the verifier", "bits")
    prefill_s: float = column("time of the measured prefill", "s")
    rendered_prompt: str = column("the prompt as the model sees it: in its chat template, special tokens as text")
    rendering_notes: list[str] | None = column("what the template did besides putting the prompt in; null if nothing")
    null_reason: str | None = _null_reason()


@table("decode_tokens", key=("prompt_id", "repetition", "step"))
class DecodeToken(GenerationRow):
    """A generated token of the verifier alone."""

    step: int = column("position in the answer, from 0")
    token_id: int = column("id under the verifier's tokenizer")
    token: str = column("text of the token; a partial UTF-8 character is shown as the replacement character")
    logprob: float = column("ln probability of the token at temperature 1", "nats")
    entropy_bits: float = column("entropy of the verifier at temperature 1", "bits")
    entropy_norm: float = column("entropy_bits over log2 of the ids that can be emitted")
    sampling_entropy_bits: float = column("entropy of the distribution sampled from", "bits")
    top_ids: list[int] = column("ids of the most likely tokens at temperature 1, descending")
    top_tokens: list[str] = column("their texts")
    top_probs: list[float] = column("their probabilities at temperature 1")
    is_word_start: bool = column("begins a word by the tokenizer's own convention")
    draft_entropy_bits: float | None = column("entropy of the draft at temperature 1 on the same text", "bits")
    draft_top_prob: float | None = column("probability of the draft's likeliest token at temperature 1, same text")
    draft_top_margin: float | None = column("draft_top_prob minus the probability of its second likeliest token")
    expected_accept: float | None = column("sum over x of min(p(x), q(x)), both warped, on the same text")


@table("decode_runs", key=("prompt_id", "repetition"))
class DecodeRun(GenerationRow):
    """A generation of the verifier alone."""

    n_prompt_tokens: int = column("tokens of the rendered prompt")
    n_tokens: int = column("tokens generated, a closing EOS included")
    finish_reason: str = column("eos or length")
    mean_entropy_bits: float = column("mean of entropy_bits over the answer", "bits")
    mean_entropy_norm: float = column("mean of entropy_norm over the answer")
    mean_draft_entropy_bits: float = column("mean of draft_entropy_bits over the answer", "bits")
    mean_expected_accept: float = column("mean of expected_accept over the answer, nothing censored")
    distinct_trigram_share: float | None = column("distinct runs of three tokens among all; under .6 it repeats itself")
    ttft_s: float = column("prefill and the first token", "s")
    decode_s: float = column("from the end of prefill to the last token; several answers are one batch", "s")
    tokens_per_s: float = column("n_tokens / decode_s", "1/s")
    text: str = column("the answer")
    null_reason: str | None = _null_reason()


@table("decode_attention", key=("prompt_id", "repetition", "position"))
class DecodeAttention(GenerationRow):
    """A prompt position, seen from the answer."""

    position: int = column("position in the rendered prompt, from 0")
    attention_from_generated: float = column("mean attention that the answer's tokens pay to this position")
    z_generated: float | None = column("robust z-score of ln attention_from_generated over content positions")
    null_reason: str | None = _null_reason()


@table("decode_attention_steps", key=("prompt_id", "repetition", "step"))
@attends
class DecodeAttentionStep(GenerationRow):
    """The verifier's query whose logits gave a generated token: that of the token before it."""

    step: int = column("position of the generated token in the answer, from 0")


@table("decode_attention_heads", key=("prompt_id", "repetition", "layer", "head"))
class DecodeAttentionHead(GenerationRow):
    """An attention head while an answer is written, where decode.attention_heads asks for it: lists over the steps.
    `lookback_ratio` follows from content_mass and own_mass."""

    layer: int = column("layer, from 0")
    head: int = column("query head, from 0")
    sink_mass: list[Half] = column("attention to position 0, step by step")
    structural_mass: list[Half] = column("attention to the prompt's other structural positions")
    content_mass: list[Half] = column("attention to the prompt's other content positions")
    own_mass: list[Half] = column("attention to the answer's own tokens")
    previous_mass: list[Half] = column("attention to the token before the query's; 0 where there is none")
    attention_entropy_bits: list[Half] = column("entropy of attention over keys", "bits")
    attention_entropy_rest_bits: list[Half] = column("the same without position 0, of what remains", "bits")


@table("spec_attention_steps", key=(*_SPECULATION, "round", "index"))
@attends
class SpecAttentionStep(SpeculationRow):
    """The verifier's query that tested a drafted token, or gave the bonus token: the row of spec_tokens with the same
    key tells of that token."""

    round: int = column("round, from 0")
    index: int = column("place in the round, as in spec_tokens")


@table("lowered_keys", key=("prompt_id", "model"))
class LoweredKeys(PromptRow):
    """A model that scores one key of each head lower, and the attention that this took from those keys.

    Attention is what the answers' tokens pay to the lowered key, a mean over layers, heads, tokens and answers: of the
    model as it is and as altered, over the same texts (those that the altered verifier wrote).
    """

    model: str = column("verifier or draft")
    mass_before: float = column("share of attention paid to the lowered key by the model as it is")
    mass_after: float = column("the same by the model as altered")
    first_position_share: float = column("share of heads whose lowered key is position 0")


@table("spec_tokens", key=(*_SPECULATION, "round", "index"))
class SpecToken(SpeculationRow):
    """A drafted token, or a token that the verifier sampled."""

    round: int = column("round, from 0")
    index: int = column("place in the round: drafted tokens from 0, then the token of the verifier")
    kind: str = column("draft, correction or bonus")
    outcome: str | None = column("accepted, rejected or untested; null unless kind is draft")
    emitted: bool = column("the token is part of the answer")
    token_id: int = column("id under the verifier's tokenizer")
    token: str = column("text of the token; a partial UTF-8 character is shown as the replacement character")
    p_draft: float | None = column("q(x): probability under the draft, warped; null for correction and bonus")
    p_verifier: float | None = column("p(x): probability under the verifier, warped; null if untested")
    accept_prob: float | None = column("min(1, p(x) / q(x)); null if untested or not drafted")
    expected_accept: float | None = column("sum over x of min(p(x), q(x)); null if untested or not drafted")
    draft_entropy_bits: float | None = column("entropy of the draft at temperature 1", "bits")
    draft_entropy_norm: float | None = column("draft_entropy_bits over log2 of the ids that can be emitted")
    draft_sampling_entropy_bits: float | None = column("entropy of q", "bits")
    draft_top_prob: float | None = column("probability of the draft's likeliest token at temperature 1")
    draft_top_margin: float | None = column("draft_top_prob minus the probability of its second likeliest token")
    verifier_entropy_bits: float | None = column("entropy of the verifier at temperature 1; null if untested", "bits")
    verifier_entropy_norm: float | None = column("verifier_entropy_bits over log2 of the ids that can be emitted")


@table("spec_rounds", key=(*_SPECULATION, "round"))
class SpecRound(SpeculationRow):
    """One draft phase and one verifier pass."""

    round: int = column("round, from 0")
    n_proposed: int = column("drafted tokens")
    n_tested: int = column("drafted tokens reached by the accept test")
    n_accepted: int = column("drafted tokens that passed")
    n_emitted: int = column("tokens added to the answer")
    stopped_early: bool = column("the stop rule ended the draft")
    draft_s: float = column("forward passes of the draft", "s")
    verify_s: float = column("forward pass of the verifier", "s")
    overhead_s: float = column("everything else: warping, sampling, capture, bookkeeping", "s")


@table("spec_runs", key=(*_SPECULATION,))
class SpecRun(SpeculationRow):
    """A speculative generation."""

    n_tokens: int = column("tokens generated, a closing EOS included")
    n_rounds: int = column("rounds")
    n_proposed: int = column("drafted tokens")
    n_tested: int = column("drafted tokens reached by the accept test")
    n_accepted: int = column("drafted tokens that passed")
    acceptance_rate: float | None = column("accepted / proposed")
    alpha: float | None = column("accepted / tested")
    alpha_expected: float | None = column("mean over tested positions of sum over x of min(p(x), q(x))")
    tokens_per_round: float = column("n_tokens / n_rounds")
    tokens_per_s: float = column("n_tokens over decoding time", "1/s")
    baseline_tokens_per_s: float | None = column("the verifier alone on the same prompt, interleaved", "1/s")
    speedup: float | None = column("verifier-only time per token / speculative time per token")
    speedup_steps: float | None = column(
        "the same from medians: n_tokens * verifier_step_s / (n_rounds * (median draft_s + verify_s + overhead_s))"
    )
    verifier_step_s: float | None = column("median time of a step of the verifier alone, sampling included", "s")
    verifier_step_p10_s: float | None = column("its 10th percentile", "s")
    verifier_step_p90_s: float | None = column("its 90th percentile", "s")
    target_efficiency: float | None = column("time of a 1-token verifier step / time of a (gamma+1)-token pass")
    draft_time_share: float = column("draft forward passes, share of the rounds' time")
    verify_time_share: float = column("verifier forward passes, share of the rounds' time")
    overhead_time_share: float = column("everything else, share of the rounds' time")
    cost_ratio_flops: float = column("c: FLOPs of a draft token / FLOPs of a verifier token")
    cost_ratio_time: float | None = column("c: time of a draft step / time of a 1-token verifier step")
    theoretical_speedup_flops: float | None = column("formula with alpha and cost_ratio_flops")
    theoretical_speedup_time: float | None = column("formula with alpha and cost_ratio_time")
    theoretical_speedup_full: float | None = column("formula with alpha and every measured cost")
    finish_reason: str = column("eos or length")
    text: str = column("the answer")
    measured_at: str = column("when it was begun (ISO 8601 with zone)")
    load_average: float | None = column("processes wanting the CPU then, mean over a minute; null where unknown")
    threads: int = column("threads that torch computed with")
    null_reason: str | None = _null_reason()


@table("correlations", key=("level", "subset", "x", "y", "method"))
class Correlation:
    """A pair of measures on a subset."""

    level: str = column("prompt or token")
    subset: str = column(
        "all, a category, or what is held constant: within_category, given_length, given_confounders, ..."
    )
    x: str = column("first measure")
    y: str = column("second measure")
    method: str = column("pearson or spearman")
    n: int = column("rows that carry both measures; prompts where the subset is within_prompt")
    estimate: float | None = column("the coefficient")
    ci_low: float | None = column("lower end of the bootstrap interval (by prompt)")
    ci_high: float | None = column("upper end of the bootstrap interval (by prompt)")
    p_value: float | None = column("two-sided p")
    p_adjusted: float | None = column("Holm within the family of one level, subset and method")
    null_reason: str | None = _null_reason()


@row
class ConditionRow:
    """What every row about a condition of speculation, over all prompts, begins with."""

    gamma: int = column("tokens proposed in a full round")
    proposer: str = column("who drafts")
    stop: str = column("rule that ends a draft early")
    stop_threshold: float | None = column("the rule's threshold; null where stop is none")
    temperature: float = column("sampling temperature of both models")
    top_p: float = column("nucleus of both models")


@table("condition_measures", key=(*_CONDITION, "measure"))
class ConditionMeasure(ConditionRow):
    """A measure at one condition."""

    measure: str = column("what was measured, or what theory makes of it")
    n: int = column("prompts behind it")
    estimate: float | None = column("mean over prompts; median of speeds, costs and what theory makes of them")
    ci_low: float | None = column("lower end of the bootstrap interval (by prompt)")
    ci_high: float | None = column("upper end of the bootstrap interval (by prompt)")
    null_reason: str | None = _null_reason()


@table("condition_differences", key=(*_CONDITION, *(f"reference_{key}" for key in _CONDITION), "measure"))
class ConditionDifference(ConditionRow):
    """A measure at one condition minus the same at another, prompt by prompt."""

    reference_gamma: int = column("gamma of the condition that is subtracted")
    reference_proposer: str = column("its proposer")
    reference_stop: str = column("its stop rule")
    reference_stop_threshold: float | None = column("that rule's threshold; null where it is none")
    reference_temperature: float = column("its temperature")
    reference_top_p: float = column("its top_p")
    measure: str = column("what was measured")
    n: int = column("prompts that have both")
    estimate: float | None = column("mean difference; median of differences of speeds and costs")
    ci_low: float | None = column("lower end of the bootstrap interval (by prompt)")
    ci_high: float | None = column("upper end of the bootstrap interval (by prompt)")
    null_reason: str | None = _null_reason()


@table("entropy_bound", key=("category", "measure"))
class EntropyBound:
    """How 1 - sqrt(c * H), H the draft's entropy in nats, holds as a bound from below of a token's expected_accept."""

    category: str = column("the prompts' category, or all")
    measure: str = column("violated_share (at coefficient) or c95 (95th percentile of (1 - expected_accept)^2 / H)")
    coefficient: float | None = column("c of the bound; null for c95")
    n: int = column("tokens behind it")
    n_excluded: int = column("tokens left out of it: their draft entropy is too near 0")
    estimate: float | None = column("the share, or the percentile")
    ci_low: float | None = column("lower end of the bootstrap interval (by prompt)")
    ci_high: float | None = column("upper end of the bootstrap interval (by prompt)")
    null_reason: str | None = _null_reason()


@table("predictors", key=("predictor", "metric", "minus"))
class PredictorScore:
    """How well a predictor predicts the fate of tested draft tokens at the primary condition."""

    predictor: str = column(
        "what is known of a token before it is tested: draft_entropy, draft_top_prob, ...; known_before_draw: p and q"
    )
    metric: str = column(
        "auroc; auroc_share (of what known_before_draw has over 0.5); brier_score, calibration_error (on prompts that "
        "the fit has not seen); calibration_error_by_chance (of a perfectly calibrated model)"
    )
    minus: str = column("the predictor that is subtracted; empty where the row is no difference")
    n_tokens: int = column("tested tokens")
    n_prompts: int = column("prompts that hold them")
    estimate: float | None = column("the score or difference")
    ci_low: float | None = column("lower end of the bootstrap interval (by prompt)")
    ci_high: float | None = column("upper end of the bootstrap interval (by prompt)")
    null_reason: str | None = _null_reason()


@table("calibration", key=("predictor", "bin"))
class CalibrationBin:
    """A tenth of the tested tokens, by what a predictor says of them."""

    predictor: str = column("the predictor")
    bin: int = column("from least to most acceptable, from 0")
    n_tokens: int = column("tested tokens")
    predicted: float = column("mean predicted probability of acceptance, from prompts other than the token's")
    accepted: float | None = column("share accepted")
    ci_low: float | None = column("lower end of the bootstrap interval (by prompt)")
    ci_high: float | None = column("upper end of the bootstrap interval (by prompt)")
    null_reason: str | None = _null_reason()


@table("token_model", key=("term",))
class TokenModelTerm:
    """A term of the logistic regression of acceptance on draft entropy, place in the round and category."""

    term: str = column("draft_entropy_bits; place_N against the first place; category_X against the first by name")
    n_tokens: int = column("tested tokens")
    n_prompts: int = column("prompts (clusters)")
    estimate: float | None = column("change of the log-odds of acceptance")
    ci_low: float | None = column("lower end of its interval, errors robust by prompt")
    ci_high: float | None = column("upper end of its interval, errors robust by prompt")
    p_value: float | None = column("two-sided p of no change")
    p_adjusted: float | None = column("Holm over the terms; null for the constant")
    null_reason: str | None = _null_reason()


@table("between_within", key=("predictor", "held", "level"))
class BetweenWithinTerm:
    """A slope of decoded tokens' expected acceptance on an entropy, at one level."""

    predictor: str = column("entropy_bits (the verifier's) or draft_entropy_bits")
    held: str = column("the other entropy, where it is in the model too; else empty")
    level: str = column("within_answer, between_answers (of a prompt) or between_prompts")
    n: int = column("tokens, answers or prompts behind it")
    n_prompts: int = column("prompts with both measures")
    estimate: float | None = column("the slope: acceptance per bit", "1/bits")
    ci_low: float | None = column("lower end of its interval, errors by a jackknife over prompts", "1/bits")
    ci_high: float | None = column("upper end of its interval, errors by a jackknife over prompts", "1/bits")
    standardised: float | None = column("the slope in standard deviations of both at this level")
    p_value: float | None = column("two-sided p of no slope")
    p_adjusted: float | None = column("Holm over the terms of one model")
    between_prompts_sd: float | None = column("standard deviation of the model's intercepts of prompts")
    between_answers_sd: float | None = column("standard deviation of its intercepts of answers within prompts")
    residual_sd: float | None = column("standard deviation of the rest, between tokens of an answer")
    null_reason: str | None = _null_reason()


@table("attention_links", key=("measure", "layers", "outcome"))
class AttentionLink(EstimateRow):
    """Attention while writing and what comes of a token, within answers: a partial rank correlation (estimate), mean
    over a prompt's answers, then over prompts."""

    measure: str = column("what the verifier's query behind the token attends to, as in decode_attention_steps")
    layers: str = column("all, or first_third, middle_third or last_third of the layers")
    outcome: str = column(
        "entropy_bits, draft_entropy_bits, expected_accept (decode_tokens); spec_accept_prob (accept_prob of tested "
        "draft tokens at the primary condition; draft entropy is held too)"
    )
    n: int = column("prompts with a coefficient")
    n_answers: int = column("answers with one")
    p_value: float | None = column("two-sided p of no correlation")
    p_adjusted: float | None = column("Holm within the outcome")
    shifted: float | None = column("the same with attention turned within the answer, as on a ring: the null")
    shifted_ci_low: float | None = column("lower end of its bootstrap interval (by prompt)")
    shifted_ci_high: float | None = column("upper end of its bootstrap interval (by prompt)")
    n_between: int = column("prompts with both means")
    between: float | None = column("rank correlation of prompts' means, ln prompt length held constant")
    between_ci_low: float | None = column("lower end of its bootstrap interval (by prompt)")
    between_ci_high: float | None = column("upper end of its bootstrap interval (by prompt)")
    between_null_reason: str | None = column("why between is null; null when it is defined")


@table("attention_explained", key=("outcome", "held"))
class AttentionExplained(EstimateRow):
    """What attention while writing adds (estimate) to the share of an outcome's variance within answers that is
    predicted, on prompts that the fit has not seen."""

    outcome: str = column("entropy_bits or expected_accept of decode_tokens")
    held: str = column("token_fed (place, and kind and surprisal of the token fed) or token_fed_and_draft_entropy")
    n: int = column("prompts behind it")
    n_tokens: int = column("tokens behind it")
    r2_held: float | None = column("share predicted by what is held alone")
    r2_held_ci_low: float | None = column("lower end of its bootstrap interval (by prompt)")
    r2_held_ci_high: float | None = column("upper end of its bootstrap interval (by prompt)")
    r2_with_attention: float | None = column("share predicted with the attention measures of each third of the layers")
    r2_with_attention_ci_low: float | None = column("lower end of its bootstrap interval (by prompt)")
    r2_with_attention_ci_high: float | None = column("upper end of its bootstrap interval (by prompt)")


@table("attention_head_links", key=("measure", "chosen_by", "layer", "head"))
class AttentionHeadLink(EstimateRow):
    """An attention head while writing and the verifier's entropy, within answers, as in attention_links."""

    measure: str = column("sink_mass, previous_mass or attention_entropy of the head")
    chosen_by: str = column(
        "empty: every head, over all prompts; a head chosen on every other prompt and tested on the rest: by link (the "
        "strongest correlation) or mass (the most attention to the token before)"
    )
    layer: int = column("layer, from 0")
    head: int = column("query head, from 0")
    n: int = column("prompts with a coefficient")
    p_value: float | None = column("two-sided p of no correlation")
    p_adjusted: float | None = column("Holm over the heads of one measure; null for chosen heads, which are one each")
    estimate_where_chosen: float | None = column("mean correlation on the prompts that chose; null where none did")


@table("claims", key=("claim_id",))
class Claim:
    """A claim and its verdict."""

    claim_id: str = column("short name of the claim")
    family: str = column("claims that Holm's adjustment treats together")
    statement: str = column("what is claimed")
    verdict: str = column("supported, contradicted, undecided or not_run")
    estimate: float | None = column("the estimate that decides")
    ci_low: float | None = column("lower end of its interval")
    ci_high: float | None = column("upper end of its interval")
    p_adjusted: float | None = column("two-sided p of the margin, Holm-adjusted within the family")
    direction: str = column("greater, less or equivalent")
    reference: float = column("the effect's value where there is none")
    margin: float = column("smallest effect of interest: distance from the reference; the equivalence margin")
    detectable_effect: float | None = column("minimum detectable effect at 80 % power: distance from the reference")
    n: int = column("prompts behind it")
    declared: str = column("when the claim was written in its present form (ISO 8601 date)")
    seen_on: list[str] = column("prompt sets on which results that bear on it had been seen by then")
    is_confirmatory: bool = column("none of this run's prompts are among them")
    note: str = column("one plain sentence")


@table("sink_roles", key=("measure", "place", "structural_role"))
class SinkRole:
    """A part of the chat template under one z-score."""

    measure: str = column("z_score, z_window or z_generated")
    place: str = column("first (position 0), inner, boundary (the template tokens that close the prompt) or content")
    structural_role: str = column("part played in the template; content; all for the boundary as a whole")
    n_prompts: int = column("prompts with such a position that carries the z-score")
    n_prompts_mild: int = column("those of the prompts whose own mean z-score here is over 2")
    n_positions: int = column("such positions")
    incidence: float | None = column("share of them that are sinks at the run's threshold")
    incidence_ci_low: float | None = column("lower end of its bootstrap interval (by prompt)")
    incidence_ci_high: float | None = column("upper end of its bootstrap interval (by prompt)")
    mean_z: float | None = column("mean z-score")
    mean_z_ci_low: float | None = column("lower end of its bootstrap interval (by prompt)")
    mean_z_ci_high: float | None = column("upper end of its bootstrap interval (by prompt)")
    is_mild_sink: bool | None = column("the interval of mean_z lies over 2 (true), under 2 (false), or neither (null)")
    null_reason: str | None = _null_reason()


@table("sink_predictions", key=("positions", "held_constant", "predictor"))
class SinkPrediction(EstimateRow):
    """How well a measure predicts, within prompts, what the answer's tokens attend to."""

    predictor: str = column("what is correlated with attention_from_generated, or the difference of two such")
    positions: str = column("content or all, or those of them before the observation window")
    held_constant: str = column("nothing, or position (nearness to the answer)")
    n_prompts: int = column("prompts that have the coefficient; estimate is its mean (Spearman)")


@table("sink_tokens", key=("measure", "threshold", "token_id"))
class SinkToken(EstimateRow):
    """A token that is a sink somewhere in content; estimate is the share of its content positions that are sinks."""

    measure: str = column("z_score, z_window or z_generated")
    threshold: float = column("z-score over which a position counts as a sink here")
    token_id: int = column("id under the verifier's tokenizer")
    token: str = column("text of the token; a partial UTF-8 character is shown as the replacement character")
    n_occurrences: int = column("content positions that hold it and carry the z-score")
    n_prompts: int = column("prompts where it does")
    n_sinks: int = column("those of the positions that are sinks")
    n_prompts_as_sink: int = column("prompts where it is a sink at least once")
    mean_position: float = column("mean position of the sinks in the rendered prompt")
    mean_z: float = column("mean z-score of the sinks")
    share_first_occurrence: float = column("share of its first occurrences in a prompt that are sinks")
    share_later_occurrences: float | None = column("share of its later occurrences that are sinks; null without any")


@table("sink_recurrence", key=("quantity", "measure", "threshold"))
class SinkRecurrence(EstimateRow):
    """Whether the token of a content sink is a sink elsewhere (a share)."""

    quantity: str = column(
        "sinks_at_other_occurrences beside sink_positions, sinks_in_other_prompts beside sink_tokens"
    )
    measure: str = column("z_score, z_window or z_generated")
    threshold: float = column("z-score over which a position counts as a sink here")
    n: int = column("what the share is of: positions, occurrences, or pairs of a prompt and a token")


@table("sink_thresholds", key=("measure", "threshold"))
class SinkThreshold:
    """What a threshold would flag."""

    measure: str = column("z_score or z_window")
    threshold: float = column("z-score over which a position counts as a sink here")
    n_structural: int = column("structural positions that carry the z-score")
    n_content: int = column("content positions that carry the z-score")
    share_structural: float | None = column("share of the structural positions that are flagged")
    share_structural_ci_low: float | None = column("lower end of its bootstrap interval (by prompt)")
    share_structural_ci_high: float | None = column("upper end of its bootstrap interval (by prompt)")
    share_content: float | None = column("share of the content positions that are flagged")
    share_content_ci_low: float | None = column("lower end of its bootstrap interval (by prompt)")
    share_content_ci_high: float | None = column("upper end of its bootstrap interval (by prompt)")
    null_reason: str | None = _null_reason()


@table("health_thresholds", key=("measure", "threshold"))
class HealthThreshold:
    """The context health of mayankpallai 2026 over prompts at a threshold."""

    measure: str = column("z_score or z_window")
    threshold: float = column("z-score over which a position counts as a sink here")
    n_prompts: int = column("prompts that carry the z-score")
    n_with_a_sink: int = column("those with a content sink")
    minimum: float | None = column("smallest score")
    lower_quartile: float | None = column("first quartile")
    median: float | None = column("median")
    upper_quartile: float | None = column("third quartile")
    largest_with_a_sink: float | None = column("largest score of a prompt with a content sink: the jump from 10")
    n_distinct: int = column("different scores")
    share_at_ten: float | None = column("share of prompts at exactly 10")
    n_raisable: int = column("prompts with a content sink and a weaker content position")
    share_raised: float | None = column("share of those whose score rises if the next weaker position is a sink too")
    share_raised_ci_low: float | None = column("lower end of its bootstrap interval (by prompt)")
    share_raised_ci_high: float | None = column("upper end of its bootstrap interval (by prompt)")
    null_reason: str | None = _null_reason()


@table("context_distributions", key=("measure",))
class ContextDistribution:
    """A context measure over prompts."""

    measure: str = column("a context measure of prefill_prompts")
    n_prompts: int = column("prompts that carry it")
    minimum: float | None = column("smallest value")
    lower_quartile: float | None = column("first quartile")
    median: float | None = column("median")
    upper_quartile: float | None = column("third quartile")
    maximum: float | None = column("largest value")
    n_distinct: int = column("different values")
    share_at_commonest: float | None = column("share of prompts at the commonest value")
    degenerate: str | None = column("why it can correlate with nothing; null if it varies")


@table("context_correlations", key=("x", "y", "held_constant"))
class ContextCorrelation(EstimateRow):
    """A pair of context measures over prompts (Spearman)."""

    x: str = column("first measure")
    y: str = column("second measure")
    held_constant: str = column("nothing, or n_tokens (its logarithm)")
    n: int = column("prompts that carry both")


@table("sink_answers", key=("quantity", "measure"))
class SinkAnswer(EstimateRow):
    """One number about sinks or context health."""

    quantity: str = column("what is estimated: a threshold, a rank correlation or a mean difference over prompts")
    measure: str = column("the z-score or score that it is about")
    n: int = column("positions behind a threshold, prompts behind everything else")


@table("prompts", key=("prompt_id",))
class PromptAsked(PromptRow):
    """A prompt that the study asks."""

    group: str | None = column("prompts of one group are not independent of each other; null for one on its own")


@table("prompt_versions", key=("prompt_id",))
class PromptVersion(PromptRow):
    """An altered version of a prompt, or the unaltered one that others are compared with."""

    original_id: str = column("id of the prompt that all its versions were made from")
    kind: str = column("how it was altered")
    dose: int = column("how much, from 1; below 0: so much less; 0 where there is no more or less")
    control_id: str | None = column("prompt_id of the version it is compared with; null for the unaltered one")
    hidden: str | None = column("position hidden from later queries: first, boundary or random; null if none is")
    hidden_from_both: bool | None = column("hidden from the draft as well as the verifier; null if none is hidden")
    lowered: str | None = column(
        "key scored lower: structural (the one that a head attends to most) or content (a random one); null if none"
    )
    lowered_by: float | None = column("what is subtracted from its score, before the softmax; null if nothing is")
    lowered_in_both: bool | None = column("in the draft as well as the verifier; null if nothing is lowered")
    temperature: float | None = column("sampling temperature imposed on the verifier; null for the study's own")
    draft_temperature: float | None = column(
        "the draft's where it does not follow; null where it samples as the verifier"
    )


@table("version_effects", key=("measure", "kind", "dose"))
class VersionEffect:
    """What one kind of alteration changes in one measure, paired within the original prompt."""

    kind: str = column("how the prompts, or the models that read them, were altered")
    dose: int = column(
        "how much, from 1; below 0: so much less; 0: change per dose (a line through the origin), or no doses"
    )
    measure: str = column("what was measured")
    n: int = column("original prompts with both values")
    difference: float | None = column("mean of version minus control")
    ci_low: float | None = column("lower end of the bootstrap interval (by original prompt)")
    ci_high: float | None = column("upper end of the bootstrap interval (by original prompt)")
    p_value: float | None = column("paired t-test, two-sided")
    p_adjusted: float | None = column("Holm within one measure; null for the change per dose")
    control_difference: float | None = column("mean of control minus the control's own control")
    control_ci_low: float | None = column("lower end of its interval")
    control_ci_high: float | None = column("upper end of its interval")
    null_reason: str | None = _null_reason()


@table("link_verdicts", key=("link", "kind", "dose"))
class LinkVerdict:
    """A link of the chain, asked of one kind of alteration at its largest dose, and at its least if that is below 0."""

    link: str = column("attention to entropy, entropy to acceptance or attention to acceptance")
    kind: str = column("how the prompts, or the models that read them, were altered")
    dose: int = column("how much, from 1; below 0: so much less; 0 where there is no more or less")
    moved: str | None = column("measure at the link's beginning; null where a position was hidden from attention")
    moved_difference: float | None = column("mean of version minus control")
    moved_ci_low: float | None = column("lower end of its bootstrap interval (by original prompt)")
    moved_ci_high: float | None = column("upper end of its bootstrap interval (by original prompt)")
    watched: str = column("measure at the link's end")
    n: int = column("original prompts with both values of it")
    watched_difference: float | None = column("mean of version minus control")
    watched_ci_low: float | None = column("lower end of its bootstrap interval (by original prompt)")
    watched_ci_high: float | None = column("upper end of its bootstrap interval (by original prompt)")
    p_adjusted: float | None = column("paired t-test of it, Holm within the measure")
    control_difference: float | None = column("mean of control minus the control's own control")
    control_ci_low: float | None = column("lower end of its interval")
    control_ci_high: float | None = column("upper end of its interval")
    reading: str = column("as_claimed, other_way, not_shown (to follow), not_moved (at the beginning), not_measured")


@table("version_models", key=("kinds", "x", "y"))
class VersionModel:
    """A mixed model over versions: one measure on another, with a random intercept for each original prompt."""

    kinds: str = column("kind of version it is about, beside the unaltered ones; all for every version together")
    x: str = column("predictor, centred within versions that share a control")
    y: str = column("outcome")
    n: int = column("versions behind it")
    n_prompts: int = column("original prompts behind it")
    slope: float | None = column("change of the outcome per unit of the predictor, within prompts")
    ci_low: float | None = column("lower end of its bootstrap interval (by original prompt)")
    ci_high: float | None = column("upper end of its bootstrap interval (by original prompt)")
    p_value: float | None = column("two-sided p, from the same bootstrap")
    between_prompts_sd: float | None = column("standard deviation of the random intercept; null if it was not found")
    residual_sd: float | None = column("standard deviation of the rest; null if it was not found")
    null_reason: str | None = _null_reason()


@row
class RoutingRow(PromptRow):
    """What every row about routing to experts begins with; what belongs to speculation is null for decode."""

    source: str = column("decode (the verifier alone) or verify (its passes in speculative rounds)")
    proposer: str | None = column("who drafts")
    stop: str | None = column("rule that ends a draft early")
    stop_threshold: float | None = column("the rule's threshold; null where stop is none")
    temperature: float = column("sampling temperature")
    top_p: float = column("nucleus")
    gamma: int | None = column("tokens proposed in a full round")
    repetition: int = column("repetition of the same generation with another seed, from 0")
    layer: int = column("layer with experts, as the model counts its layers from 0")


@table("routing_tokens", key=(*_ROUTING, "round", "index", "layer"))
class RoutingToken(RoutingRow):
    """A token that the verifier was fed, in one layer with experts."""

    round: int | None = column("round, from 0; null for decode")
    index: int = column(
        "decode: the answer's step that was computed from this token; verify: place in the pass, 0 for the text's last "
        "token, then the drafted ones (spec_tokens counts these from 0)"
    )
    token_id: int = column("id of the token that was fed")
    outcome: str | None = column("accepted, rejected or untested; null unless drafted")
    experts: list[int] = column("chosen experts, by falling gate")
    gates: list[float] = column("their weights as the layer uses them")
    gate_entropy_bits: float = column("entropy of the router's probabilities over all experts of the layer", "bits")


@table("routing_layers", key=(*_ROUTING, "layer"))
class RoutingLayer(RoutingRow):
    """A layer with experts over one generation."""

    n_experts: int = column("routed experts of the layer")
    n_chosen: int = column("experts that a token uses")
    n_tokens: int = column("tokens behind mean_probability")
    mean_probability: list[float] = column("mean router probability of each expert")
    expert_bytes: float = column("weights of one expert", "bytes")
    other_bytes: float = column("weights that every pass reads: all but routed experts, of the whole model", "bytes")


@table("routing_windows", key=("source", "window", "layer"))
class RoutingWindow(EstimateRow):
    """Distinct experts of W consecutive tokens in a layer: measured (estimate), and by three baselines."""

    source: str = column("decode (windows of the verifier's answers) or verify (full passes of speculative rounds)")
    layer: int | None = column("layer with experts; null: mean over layers")
    window: int = column("tokens of the window, gamma + 1")
    n_prompts: int = column("prompts behind it")
    n_windows: int = column("windows behind it, in each layer")
    uniform: float = column("if every token chose uniformly")
    independent: float = column("if tokens chose independently with the layer's popularity")
    pairwise: float | None = column("maximum entropy given popularity and co-activation of every pair in the windows")
    pairwise_null_reason: str | None = column("why pairwise is null; null when it is defined")


@table("routing_measures", key=("measure", "layer"))
class RoutingMeasure(EstimateRow):
    """One number about routing."""

    measure: str = column("what is estimated")
    layer: int | None = column("layer with experts; null: over layers")
    n: int = column("prompts behind it")


@table("routing_costs", key=(*_CONDITION, "batch"))
class RoutingCost(ConditionRow):
    """What verifying gamma + 1 tokens costs: by the bytes that it reads, and by the clock (estimate)."""

    batch: int = column("sequences verified together; the bytes model takes them as independent of each other")
    n: int = column("prompts behind it")
    distinct_one: float = column("distinct experts of a layer in a 1-token step")
    distinct_pass: float = column("distinct experts of a layer in a pass over gamma + 1 tokens, as measured")
    by_bytes: float = column("target_efficiency if reading weights were all, distinct experts as measured")
    by_bytes_ci_low: float | None = column("lower end of its bootstrap interval (by prompt)")
    by_bytes_ci_high: float | None = column("upper end of its bootstrap interval (by prompt)")
    by_bytes_uniform: float = column("the same if every token chose uniformly")
    by_bytes_independent: float = column("the same if tokens chose independently with the layer's popularity")
    by_bytes_pairwise: float | None = column("the same with the pairwise maximum-entropy prediction")
    estimate: float | None = column("target_efficiency by the clock; null where it was not timed")
    ci_low: float | None = column("lower end of its bootstrap interval (by prompt)")
    ci_high: float | None = column("upper end of its bootstrap interval (by prompt)")
    speedup: float | None = column("measured speedup")
    speedup_by_bytes: float | None = column("formula with alpha, the draft's measured cost, and by_bytes")
    speedup_by_clock: float | None = column("the same with target_efficiency by the clock")
    null_reason: str | None = _null_reason()


@table("retention_runs", key=("prompt_id", "repetition", "model", "policy", "budget"))
class RetentionRun(GenerationRow):
    """A model over an answer of the verifier alone, with fewer of the prompt's keys in its cache."""

    model: str = column("whose cache drops keys: draft or verifier; the other keeps all")
    policy: str = column("keys kept: all, first_and_last, last or random_and_last, of one budget equally many")
    budget: float = column("share of the prompt's tokens whose keys are kept")
    n_tokens: int = column("tokens of the answer, a closing EOS included")
    n_kept: int = column("prompt tokens whose keys are kept")
    n_dropped: int = column("prompt tokens whose keys no query behind the prefill sees")
    mean_expected_accept: float | None = column("mean over the answer of sum over x of min(p(x), q(x)), both warped")
    mean_nll_bits: float | None = column("mean negative log2-likelihood of the answer under this model", "bits")
    mean_entropy_bits: float | None = column("mean entropy of this model at temperature 1", "bits")
    mean_kl_bits: float | None = column(
        "mean Kullback-Leibler divergence, at temperature 1, of the model with its whole cache from it with this one",
        "bits",
    )
    attention_lost: float | None = column(
        "share of attention that generating queries pay the dropped keys in the whole cache, mean over layers and heads"
    )
    null_reason: str | None = _null_reason()


@table("retention_costs", key=("model", "measure", "policy", "budget", "minus"))
class RetentionCost(EstimateRow):
    """A measure of `retention_runs`, mean over prompts: at one way to drop keys, or its difference to another."""

    model: str = column("whose cache drops keys: draft or verifier")
    measure: str = column("what was measured")
    policy: str = column("keys kept: all, first_and_last, last or random_and_last")
    budget: float = column("share of the prompt's tokens whose keys are kept")
    minus: str = column("the policy that is subtracted, prompt by prompt; empty where the row is no difference")
    n: int = column("prompts behind it")


@table("errors", key=("stage", "prompt_id", "kind", "message"))
class ErrorRow:
    """A prompt that failed in a stage."""

    stage: str = column("render, or the stage that failed: prefill, decode, speculate, routing, retention")
    prompt_id: str = column("the prompt's id, unique in its set")
    kind: str = column("what went wrong, in a word")
    message: str = column("what went wrong, in a line")


MECHANISM_TABLES = ("predictors", "calibration", "token_model", "between_within")
SINK_TABLES = (
    "sink_roles",
    "sink_predictions",
    "sink_tokens",
    "sink_recurrence",
    "sink_thresholds",
    "health_thresholds",
    "context_distributions",
    "context_correlations",
    "sink_answers",
)
WRITING_TABLES = ("attention_links", "attention_explained", "attention_head_links")
ROUTING_TABLES = ("routing_windows", "routing_measures", "routing_costs")
VERSION_TABLES = ("version_effects", "link_verdicts", "version_models")
STAGE_TABLES: dict[str, tuple[str, ...]] = {
    "prefill": ("prefill_tokens", "prefill_heads", "prefill_prompts"),
    "decode": (
        *("decode_tokens", "decode_runs", "decode_attention"),
        *("decode_attention_steps", "decode_attention_heads", "lowered_keys"),
    ),
    "speculate": ("spec_tokens", "spec_rounds", "spec_runs", "spec_attention_steps"),
    "routing": ("routing_tokens", "routing_layers"),
    "retention": ("retention_runs",),
    "analyze": (
        *("correlations", "condition_measures", "condition_differences", "entropy_bound", "claims"),
        *MECHANISM_TABLES,
        *SINK_TABLES,
        *WRITING_TABLES,
        *VERSION_TABLES,
    ),
}

TIMING_COLUMNS = frozenset(
    {
        "prefill_s",
        "ttft_s",
        "decode_s",
        "draft_s",
        "verify_s",
        "overhead_s",
        "tokens_per_s",
        "baseline_tokens_per_s",
        "speedup",
        "speedup_steps",
        "verifier_step_s",
        "verifier_step_p10_s",
        "verifier_step_p90_s",
        "target_efficiency",
        "draft_time_share",
        "verify_time_share",
        "overhead_time_share",
        "cost_ratio_time",
        "theoretical_speedup_time",
        "theoretical_speedup_full",
        "measured_at",
        "load_average",
        "threads",
    }
)
"""Columns that a clock or the machine decides: all others are the same, to the bit, when a study is run again."""
