"""Every measure, declared once: what it is called, where it comes from, where it is asked about, how it is drawn.

A measure is called by its name; where it depends on the condition, results are keyed by both (`At`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal

from specstudy.condition import Condition

Subject = Literal["context", "entropy", "acceptance", "rounds", "speed", "theory", "cost", "tokens", "sinks", "claims"]
Place = Literal["conditions", "differences", "gammas", "versions", "compare", "summary"]


@dataclass(frozen=True)
class Measure:
    """A number that the study speaks of.

    `label` holds its unit, range or definition in brackets; `short` heads a narrow column. `of` is what it tells of: no
    clock has a part in what is of `acceptance` or `rounds`. `table` and `column` (the name itself if empty) are where
    it stands; without a table the analysis makes it. `places` (words of `Place`): where it is asked about beyond what
    all of its subject are: by condition, in differences of conditions, by gamma, between versions of prompts, between
    runs, in summaries and sweeps. `look`: colour and marker in every figure (`style.look`).
    """

    name: str
    label: str
    of: Subject
    table: str = ""
    places: str = ""
    column: str = ""
    short: str = ""
    digits: int = 2
    look: str = "blue o"


# In reading order; each list of measures keeps it.
_PREFILL, _ANSWERS, _TOKENS, _RUNS = "prefill_prompts", "decode_runs", "decode_tokens", "spec_runs"
_MADE, _ALL, _BY_CONDITION = "", "conditions differences gammas compare summary", "conditions gammas"
_DECLARED = (
    Measure("context_health_soft", "soft context health (0 to 10)", "context", _PREFILL, "versions compare"),
    Measure("context_health", "context health (0 to 10)", "context", _PREFILL),
    Measure("context_health_window", "window context health (0 to 10)", "context", _PREFILL),
    Measure("structural_share", "share of attention on structural tokens", "context", _PREFILL, "versions"),
    Measure(
        "boundary_attention_entropy",
        "attention entropy at the boundary (normalised)",
        "context",
        _PREFILL,
        places="versions",
    ),
    Measure("sink_rate", "sink rate (share of heads)", "context", _PREFILL),
    Measure("prompt_nll_bits", "prompt surprisal (bits per token)", "context", _PREFILL, "versions"),
    Measure("n_tokens", "prompt length (tokens)", "context", _PREFILL),
    Measure(
        "mean_entropy_bits",
        "mean entropy of the answer (bits)",
        "entropy",
        _ANSWERS,
        "versions compare summary",
        short="entropy (bits)",
    ),
    Measure(
        "mean_draft_entropy_bits",
        "mean draft entropy over the answer (bits)",
        "entropy",
        _ANSWERS,
        "compare",
        short="draft entropy (bits)",
    ),
    Measure("mass_moved", "attention taken from the lowered key (share)", "sinks", _MADE, "versions", digits=3),
    Measure(
        "mean_sampling_entropy_bits",
        "mean entropy of the distribution sampled from (bits)",
        "entropy",
        _TOKENS,
        "versions",
        "sampling_entropy_bits",
    ),
    Measure(
        "mean_expected_accept",
        "expected acceptance on the same text",
        "tokens",
        _ANSWERS,
        "versions compare summary",
        short="accept, same text",
    ),
    Measure(
        "acceptance_rate",
        "acceptance rate (accepted / proposed)",
        "acceptance",
        _RUNS,
        _ALL,
        short="accepted / proposed",
    ),
    Measure("alpha", "alpha (accepted / tested)", "acceptance", _RUNS, f"{_ALL} versions", look="vermillion D"),
    Measure(
        "alpha_expected",
        "expected alpha (sum of min(p, q))",
        "acceptance",
        _RUNS,
        f"{_ALL} versions",
        look="green s",
    ),
    Measure("tokens_per_round", "tokens per round", "rounds", _RUNS, f"{_BY_CONDITION} differences versions compare"),
    Measure(
        "tokens_per_round_expected",
        "tokens per round, predicted from alpha",
        "rounds",
        _MADE,
        "gammas",
        look="orange ^",
    ),
    Measure("proposed_per_token", "drafted tokens per emitted token", "rounds", _MADE, "differences"),
    Measure("untested_share", "share of drafted tokens never tested", "rounds", _MADE, "differences"),
    Measure("speedup", "measured speedup (verifier alone = 1)", "speed", _RUNS, _ALL, short="speedup"),
    Measure(
        "speedup_steps",
        "measured speedup from step times (verifier alone = 1)",
        "speed",
        _RUNS,
        _ALL,
        short="speedup by steps",
        look="vermillion o",
    ),
    *(
        Measure(f"theoretical_speedup_{name}", label, "theory", table, _BY_CONDITION, look=look)
        for name, label, table, look in (
            ("flops", "theory: alpha, cost from FLOPs", _RUNS, "green s"),
            ("time", "theory: alpha, cost from step times", _RUNS, "orange ^"),
            ("full", "theory: alpha, every measured cost", _RUNS, "pink v"),
            ("acceptance_rate", "theory fed accepted / proposed (as in mayankpallai 2026)", _MADE, "sky P"),
        )
    ),
    Measure("cost_ratio_flops", "c from FLOPs", "cost", _RUNS, _BY_CONDITION, digits=3),
    Measure("cost_ratio_time", "c from step times", "cost", _RUNS, _BY_CONDITION, digits=3),
    Measure("target_efficiency", "target efficiency", "cost", _RUNS, _BY_CONDITION),
    Measure("verifier_step_s", "step of the verifier alone (s)", "cost", _RUNS, "conditions", digits=4),
    Measure("tokens_per_s", "tokens per second", "speed", _RUNS, "conditions compare", digits=1),
    Measure("breakeven_alpha_flops", "break-even alpha, c from FLOPs", "cost", _MADE, "gammas", look="green s"),
    Measure("breakeven_alpha_time", "break-even alpha, c from step times", "cost", _MADE, "gammas", look="orange ^"),
    Measure("breakeven_alpha_full", "break-even alpha, every measured cost", "cost", _MADE, "gammas", look="pink v"),
    Measure("draft_time_share", "share of a round's time: draft", "cost", _RUNS, "gammas"),
    Measure("verify_time_share", "share of a round's time: verify", "cost", _RUNS, "gammas"),
    Measure("overhead_time_share", "share of a round's time: overhead", "cost", _RUNS, "gammas"),
    Measure(
        "entropy_link",
        "draft entropy and expected acceptance, Spearman within a prompt (median)",
        "tokens",
        short="entropy link",
    ),
    *(
        Measure(name, label, "sinks")
        for name, label in (
            ("first_position_z_score", "z-score of position 0"),
            ("attention_received", "attention per visible query"),
            ("attention_window", "attention from the last prompt positions"),
            ("attention_from_generated", "attention from the answer's tokens"),
        )
    ),
    *(
        Measure(name, label, "claims")
        for name, label in (
            *(
                (
                    f"boundary_gain_{z_score}",
                    f"z-score of the boundary's template tokens minus that of the last content, by {attention}",
                )
                for z_score, attention in (
                    ("z_score", "attention received"),
                    ("z_window", "window attention"),
                    ("z_generated", "attention from the answer"),
                )
            ),
            ("first_token_attention", "attention from the last prompt positions to the first token (mean over heads)"),
            ("first_token_logit", "logit of attention to the first token"),
            ("ln_n_tokens", "ln of the prompt's tokens"),
            ("tokens_of_rounds", "tokens of all rounds"),
            ("tokens_of_rounds_predicted", "tokens of all rounds predicted from alpha"),
            ("commitment_entropy_bits", "entropy where a word begins minus where it continues (bits)"),
            ("number_entropy_bits", "entropy where a number is written minus that at other words (bits)"),
            ("alpha_over_acceptance_rate", "alpha minus acceptance rate (accepted / tested minus accepted / proposed)"),
            ("bound_violated", "share of tokens under the entropy bound"),
            (
                "sink_keys_kl_bits",
                "divergence from the whole cache with four random keys minus that with the first four, half of all kept"
                " (bits per token)",
            ),
            ("windowed_draft_accept", "change of expected acceptance by a draft with half of the keys, first and last"),
        )
    ),
    *(
        Measure(name, label, "speed")
        for name, label in (
            ("speedup_over_theory_flops", "measured speedup over theory with alpha and c from FLOPs"),
            ("speedup_over_theory_time", "measured speedup over theory with alpha and c from step times"),
            ("speedup_over_theory_full", "measured speedup over theory with alpha and every measured cost"),
            ("speedup_over_theory_acceptance_rate", "measured speedup over theory fed accepted / proposed"),
        )
    ),
    *(
        Measure(name, label, "tokens")
        for name, label in (
            ("draft_entropy", "draft entropy"),
            ("draft_top_prob", "top probability of the draft"),
            ("draft_top_margin", "top-2 margin of the draft"),
            ("drafted_prob", "probability of the drafted token"),
            ("entropy_bound", "entropy bound"),
            ("known_before_draw", "p and q, known before the draw"),
            ("entropy_bits", "verifier entropy (bits)"),
            ("draft_entropy_bits", "draft entropy (bits)"),
            ("verifier_entropy_bits", "verifier entropy (bits)"),
            ("expected_accept", "expected acceptance of the token"),
            ("spec_accept_prob", "chance that a drafted token passes (min(1, p / q))"),
            ("sink_mass", "attention to position 0"),
            ("structural_mass", "attention to the template"),
            ("content_mass", "attention to content"),
            ("own_mass", "attention to the answer itself"),
            ("lookback_ratio", "lookback ratio"),
            ("attention_entropy", "attention entropy (over its maximum)"),
            ("attention_entropy_rest", "attention entropy without position 0"),
            ("previous_mass", "attention to the token before"),
            ("accepted", "acceptance of tested tokens (1 or 0)"),
            ("auroc", "AUROC"),
            ("auroc_share", "share of the ceiling of AUROC"),
            ("brier_score", "Brier score"),
            ("calibration_error", "calibration error"),
            ("calibration_error_by_chance", "calibration error by chance"),
            ("mean_kl_bits", "divergence from the whole cache (KL, bits per token)"),
            ("mean_nll_bits", "surprisal of the answer (bits per token)"),
            ("attention_lost", "attention that the dropped keys had (share)"),
        )
    ),
)
MEASURES = {measure.name: measure for measure in _DECLARED}


def measures_of(subject: Subject) -> tuple[str, ...]:
    """The names of the measures of a subject."""
    return tuple(name for name, measure in MEASURES.items() if measure.of == subject)


def measures_in(place: Place, table: str | None = None) -> tuple[str, ...]:
    """The names of the measures that are asked about in a place, those of one table if it is given."""
    asked = (m for m in _DECLARED if place in m.places.split())
    return tuple(m.name for m in asked if table is None or m.table == table)


CONTEXT_MEASURES, ACCEPTANCE_MEASURES = measures_of("context"), measures_of("acceptance")
THEORIES = measures_of("theory")
PRIMARY_CONTEXT_MEASURE, ENTROPY_MEASURE = "context_health_soft", "mean_entropy_bits"
DRAFT_ENTROPY_MEASURE, ANSWER_ACCEPTANCE_MEASURE = "mean_draft_entropy_bits", "mean_expected_accept"
# Of the verifier's own answers: both entropies and acceptance on one text.
ANSWER_MEASURES = (ENTROPY_MEASURE, DRAFT_ENTROPY_MEASURE, ANSWER_ACCEPTANCE_MEASURE)
PRIMARY_ACCEPTANCE_MEASURE = "alpha_expected"


@dataclass(frozen=True)
class At:
    """A measure at a condition, by which results are keyed. `suffix` names it in tables (`condition_suffixes`)."""

    measure: str
    condition: Condition
    suffix: str = field(default="", compare=False)

    def __str__(self) -> str:
        """As the tables call it: `alpha@gamma4`."""
        return self.measure + self.suffix


Key = str | At
"""What a result is of: a measure, or one at a condition."""


def is_timed(key: Key) -> bool:
    """Whether a clock has a part in a measure, or it stands beside such ones: speed, costs, what theory makes of them.

    Over prompts these are told as medians.
    """
    name = key.measure if isinstance(key, At) else key
    return name in MEASURES and MEASURES[name].of in ("speed", "theory", "cost")


def label(key: Key) -> str:
    """A measure's name in figures and tables, with its unit and condition; one that is not declared as it is."""
    name = key.measure if isinstance(key, At) else key
    words = MEASURES[name].label if name in MEASURES else name
    return f"{words}, {_in_words(key.suffix)}" if isinstance(key, At) and key.suffix else words


def phrase(key: Key) -> str:
    """A measure's name in a sentence: its label without what stands in brackets."""
    return re.sub(r" \(.*?\)+", "", label(key))


def short(name: str) -> str:
    """A measure's name at the head of a narrow column."""
    return MEASURES[name].short or phrase(name)


CONDITION_KEYS = tuple(f.name for f in fields(Condition))
# What names a condition among others; a threshold is named with its rule.
_NAMING_KEYS = ("gamma", "proposer", "stop", "temperature", "top_p")


def condition_suffixes(conditions: list[Condition]) -> dict[Condition, str]:
    """What is added to a measure's name to say which condition it belongs to: nothing where there is only one.

    Only the keys that vary are named: `@gamma4`, `@gamma4,stop=entropy 0.5,temperature=0.7`.
    """
    named = {condition: {key: _value(condition, key) for key in _NAMING_KEYS} for condition in conditions}
    varying = [key for key in _NAMING_KEYS if len({values[key] for values in named.values()}) > 1]
    return {condition: _suffix({key: values[key] for key in varying}) for condition, values in named.items()}


def _value(condition: Condition, key: str) -> str:
    return condition.rule if key == "stop" else str(getattr(condition, key))


def _suffix(named: Mapping[str, str]) -> str:
    parts = [f"gamma{value}" if key == "gamma" else f"{key}={value}" for key, value in named.items()]
    return "@" + ",".join(parts) if parts else ""


def condition_name(condition: Condition, suffixes: Mapping[Condition, str]) -> str:
    """A condition as figures and tables call it: the keys that vary, else its gamma."""
    return _in_words(suffixes[condition]) or f"gamma {condition.gamma}"


def _in_words(suffix: str) -> str:
    return suffix.removeprefix("@").replace("gamma", "gamma ").replace(",", ", ")


def primary_condition(conditions: list[Condition], wanted: Condition) -> Condition | None:
    """The condition that claims and single-condition figures speak about: `wanted`, else the nearest; None if none ran.

    Nearest in gamma comes first, then the one that shares the most other keys, then the order of conditions.
    """

    def distance(condition: Condition) -> tuple[int, int, Condition]:
        n_other = sum(getattr(condition, key) != getattr(wanted, key) for key in CONDITION_KEYS)
        return abs(condition.gamma - wanted.gamma), n_other, condition

    return min(conditions, key=distance, default=None)


def of_other_gammas(conditions: Iterable[Condition], condition: Condition) -> list[Condition]:
    """The conditions that differ from this one in gamma alone, itself included, in order of gamma."""
    return sorted(other for other in conditions if replace(other, gamma=condition.gamma) == condition)
