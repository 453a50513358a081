"""Every figure of a study, drawn from analysis results and tables alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from specstudy.analysis.join import Tables
from specstudy.analysis.study import AnalysisResult
from specstudy.report.figures import (
    acceptance,
    attention,
    categories,
    chain,
    context,
    gammas,
    health,
    interventions,
    lowered,
    mechanism,
    retention,
    routing,
    sampling,
    sinks,
    speed,
    stop_rules,
    trace,
    writing,
)
from specstudy.report.style import figure_style, save

# In the order in which they are read. A drawer gives None where its data is not there.
DRAWERS: dict[str, Callable[[AnalysisResult, Tables], Figure | None]] = {
    "attention_to_entropy": chain.attention_to_entropy,
    "entropy_to_acceptance": chain.entropy_to_acceptance,
    "draft_entropy_to_acceptance": chain.draft_entropy_to_acceptance,
    "attention_to_acceptance": chain.attention_to_acceptance,
    "context_measures": context.context_measures,
    "by_category": categories.by_category,
    "acceptance_by_draft_entropy": acceptance.by_draft_entropy,
    "acceptance_by_round_index": acceptance.by_round_index,
    "calibration": mechanism.calibration,
    "sinks_by_role": sinks.sinks_by_role,
    "attention_predicted": attention.attention_predicted,
    "first_token_attention": attention.first_token_attention,
    "thresholds": health.thresholds,
    "soft_health_by_length": health.soft_health_by_length,
    "context_matrix": health.context_matrix,
    "entropy_trace": trace.entropy_trace,
    "attention_links": writing.attention_links,
    "writing_trace": writing.writing_trace,
    "head_links": writing.head_links,
    "reliability": context.reliability,
    "round_time": speed.round_time,
    "acceptance_by_gamma": gammas.acceptance_by_gamma,
    "tokens_by_gamma": gammas.tokens_by_gamma,
    "speedup_by_gamma": gammas.speedup_by_gamma,
    "breakeven_by_gamma": gammas.breakeven_by_gamma,
    "rule_differences": stop_rules.rule_differences,
    "entropy_bound": stop_rules.entropy_bound,
    "acceptance_by_sampling": sampling.acceptance_by_sampling,
    "version_effects": interventions.version_effects,
    "version_pairs": interventions.version_pairs,
    "imposed_entropy": interventions.imposed_entropy,
    "retention_curves": retention.retention_curves,
    "lowered_sinks": lowered.lowered_sinks,
    "distinct_experts": routing.distinct_experts,
    "bytes_and_clock": routing.bytes_and_clock,
}

CAPTIONS: dict[str, str] = {
    "attention_to_entropy": "First link: how evenly attention is spread over the prompt, against the entropy of the "
    "answer. A dot is a prompt; the line is least squares, the band its bootstrap interval over prompts.",
    "entropy_to_acceptance": "Second link, on one text: the verifier's mean entropy over its own answers against "
    "expected acceptance of the same tokens (nothing censored; a dot is the mean over a prompt's answers).",
    "draft_entropy_to_acceptance": "The same with the draft's entropy, which is known before the verifier runs.",
    "attention_to_acceptance": "Both links at once: the spread of attention at prefill against expected acceptance.",
    "context_measures": "Every context measure against entropy and acceptance: over all prompts, and adjusted for "
    "category and prompt length. A measure that does not vary has no correlation and is named.",
    "by_category": "Each prompt as a dot; the bar is the mean (of speedups the median) with its bootstrap interval.",
    "acceptance_by_draft_entropy": "Token by token, in ten bins of draft entropy: expected acceptance on the "
    "verifier's own text (nothing censored), and the share of tested tokens that was accepted.",
    "acceptance_by_round_index": "Share of tested tokens accepted, by place in the round. A place is reached only if "
    "all before it were accepted, so later places see the easier stretches of text.",
    "calibration": "Reliability diagrams: tenths of the tested draft tokens by what a predictor says of them, against "
    "the share that was accepted. Probabilities are of logistic regressions on held-out prompts; the entropy "
    "bound, 1 − √(0.2 H), and what p and q say before the draw are used as probabilities. Dashed: perfect calibration. "
    "By chance: the error of a perfectly calibrated model on as many tokens.",
    "sinks_by_role": "Attention as a robust z-score, by the part a token plays in the template, under three measures. "
    "The first divides by the queries that can see a position, which inflates positions near the end; the second sees "
    "nothing inside its own window; the third is what the answer's tokens attend to.",
    "attention_predicted": "How well attention at prefill predicts what the answer attends to. A faint dot is a "
    "prompt, a large one the mean over prompts with its interval. The two measures are comparable only before the "
    "window. Position alone shows the effect of recency; red holds it constant.",
    "first_token_attention": "Attention that each head pays to position 0, mean over queries and prompts. The "
    "literature's sink rate counts heads over 0.3.",
    "thresholds": "What each sink threshold flags, and the context health that follows. Dashed: the smallest "
    "threshold that flags at most 1 % of content positions (the level line); dotted: the one this run used. A share of "
    "none is not drawn. Triangles: the largest score of a prompt with a content sink; every other prompt is at 10.",
    "soft_health_by_length": "The primary context measure against the number of content positions behind it. Grey: "
    "the score where every position has the attention of one as far from the end of a prompt drawn at random.",
    "context_matrix": "Correlations among context measures. A dash: the measure does not vary.",
    "entropy_trace": "One answer, token by token: entropy of the verifier and of the draft on the same text "
    "(the prompt whose mean entropy is the median).",
    "attention_links": "What the query behind each token attends to, against what comes of the token: the token's "
    "place in the answer, and kind and surprisal of the token fed are held constant (of drafted tokens draft entropy "
    "too). Grey: the same with attention turned within the answer by random amounts.",
    "writing_trace": "One answer, token by token: the verifier's entropy, and what the query behind each token pays to "
    "position 0 (the prompt whose correlation of the two is the median over prompts; its first answer).",
    "head_links": "Each attention head's mass or entropy against the verifier's entropy, within answers. A ring: the "
    "head with the strongest correlation on every other prompt; a square: the one that pays the token before most.",
    "reliability": "Intraclass correlation across answers to one prompt, stepped up to the number of answers. The "
    "noise ceiling of a correlation of two texts is the square root of the product of the two reliabilities.",
    "round_time": "Where the time of a round goes: forward passes of the draft, forward pass of the verifier, and "
    "everything else.",
    "acceptance_by_gamma": "The three acceptance numbers against gamma. Accepted / proposed falls with gamma by "
    "construction; alpha does not.",
    "tokens_by_gamma": "Tokens a round emits, measured, and what the formula, (1 − α^(γ+1)) / (1 − α), expects from "
    "each prompt's alpha if every token is accepted independently of the others. Bars are intervals over prompts.",
    "breakeven_by_gamma": "Break-even alpha: where the expected speedup is 1. By c alone "
    "the verifier's wider pass and the overhead are free; by every measured cost they are not. Drafting pays where "
    "the measured alpha lies above the curve.",
    "rule_differences": "Rules that end a draft early, minus drafts of fixed length on the same prompts and random "
    "numbers: the mean paired difference (of speedups the median one) with its interval.",
    "entropy_bound": "Every token of the verifier's own answers, nothing censored: expected acceptance "
    "against the draft's entropy, with the bound of the stop rule. The bound is a heuristic, not proven. Acceptance is "
    "between the distributions sampled from, after temperature and top_p; the entropy is at temperature 1.",
    "acceptance_by_sampling": "The three acceptance numbers by temperature and top_p of both models, on the same "
    "prompts and random numbers.",
    "distinct_experts": "Distinct experts that consecutive tokens use, mean over layers. Full verifier passes hold "
    "rejected tokens too. The line across is all experts of a layer.",
    "bytes_and_clock": "Left: target efficiency if only reading weights cost time, with the experts used, and by the "
    "clock. Right: by bytes for several sequences verified together, independent of each other; nothing was timed.",
    "version_effects": "Paired difference of each kind of alteration from its control, with the interval over "
    "prompts; the stronger the colour, the higher the dose. Hollow: the control against the unaltered version, which "
    "would show an effect of length, or of altering any position.",
    "version_pairs": "Every original prompt as a line from the control to the version at the largest dose; the heavy "
    "line is the mean.",
    "imposed_entropy": "Entropy imposed by the verifier's temperature, against acceptance. A thin line "
    "is a prompt, the heavy one the mean over prompts with its interval; labels are temperatures.",
    "retention_curves": "What keys are worth: after prefill a share of the prompt's keys is kept, the same number "
    "on every line. Left: the draft's; nothing but acceptance changes, here against its whole cache, prompt by prompt. "
    "Right: the verifier's own divergence from its whole cache.",
    "lowered_sinks": "What lowering the score of one key of each head changes, against the attention that this took "
    "from the key (paid by the answers' tokens over the same texts; the verifier as it is minus as altered): the "
    "structural key that the head attends to most, and as control a random content key. Labels are what was subtracted "
    "before the softmax.",
    "speedup_by_gamma": "Measured speedup, by the clock and from step times, against four theories; medians over "
    "prompts. mayankpallai 2026 fed accepted / proposed into a "
    "formula that means alpha.",
}


def draw_all(result: AnalysisResult, tables: Tables, directory: Path) -> list[Path]:
    """Draws every figure that the data allows as PNG and SVG; returns the files in reading order."""
    written: list[Path] = []
    with figure_style():
        for name, draw in DRAWERS.items():
            figure = draw(result, tables)
            if figure is not None:
                written += save(figure, directory, name)
    return written
