"""Every measure, declared once: what it is called, where it comes from, where it is asked about, how it is drawn.

A measure is called by its name; one of a setting is told apart by the setting (`setting_names`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal

from specstudy.setting import Setting

Subject = Literal["context", "entropy", "acceptance", "rounds", "speed", "theory", "cost", "tokens", "sinks", "claims"]
Place = Literal["settings", "differences", "gammas", "versions", "compare", "summary"]


@dataclass(frozen=True)
class Measure:
    """A number that the study speaks of.

    `label` holds its unit, range or definition in brackets; `short` heads a narrow column. `of` is what it tells of: no
    clock has a part in what is of `acceptance` or `rounds`. `table` and `column` (the name itself if empty) are where
    it stands; without a table the analysis makes it. `places`: where it is asked about beyond what all of its subject
    are: by setting, in differences of settings, by gamma, between versions of prompts, between runs, in summaries and
    sweeps. `color` and `marker` are its look in every figure (`style.look`).
    """

    name: str
    label: str
    of: Subject
    table: str = ""
    column: str = ""
    short: str = ""
    digits: int = 2
    places: tuple[Place, ...] = ()
    color: str = "blue"
    marker: str = "o"


def _context(name: str, label: str, *places: Place) -> Measure:
    return Measure(name, label, "context", "prefill_prompts", places=places)


def _claimed(name: str, label: str) -> Measure:
    return Measure(name, label, "claims")


def _token(name: str, label: str) -> Measure:
    return Measure(name, label, "tokens")


# In reading order; each list of measures keeps it.
_DECLARED = (
    _context("context_health_soft", "soft context health (0 to 10)", "versions", "compare"),
    _context("context_health", "context health (0 to 10)"),
    _context("context_health_window", "window context health (0 to 10)"),
    _context("structural_share", "share of attention on structural tokens", "versions"),
    _context("boundary_attention_entropy", "attention entropy at the boundary (normalised)", "versions"),
    _context("sink_rate", "sink rate (share of heads)"),
    _context("prompt_nll_bits", "prompt surprise (bits per token)", "versions"),
    _context("n_tokens", "prompt length (tokens)"),
    Measure(
        *("mean_entropy_bits", "mean entropy of the answer (bits)", "entropy", "decode_runs"),
        short="entropy (bits)",
        places=("versions", "compare", "summary"),
    ),
    Measure(
        *("mean_sampling_entropy_bits", "mean entropy of the distribution sampled from (bits)", "entropy"),
        *("decode_tokens", "sampling_entropy_bits"),
        places=("versions",),
    ),
    Measure(
        *("mean_expected_accept", "expected acceptance on the verifier's own text", "tokens"),
        *("decode_tokens", "expected_accept"),
        places=("versions",),
    ),
    Measure(
        *("acceptance_rate", "acceptance rate (accepted / proposed)", "acceptance", "spec_runs"),
        short="accepted / proposed",
        places=("settings", "differences", "gammas", "compare", "summary"),
    ),
    Measure(
        *("alpha", "alpha (accepted / tested)", "acceptance", "spec_runs"),
        short="alpha",
        places=("settings", "differences", "gammas", "versions", "compare", "summary"),
        color="vermillion",
        marker="D",
    ),
    Measure(
        *("alpha_expected", "expected alpha (sum of min(p, q))", "acceptance", "spec_runs"),
        short="expected alpha",
        places=("settings", "differences", "gammas", "versions", "compare", "summary"),
        color="green",
        marker="s",
    ),
    Measure(
        *("tokens_per_round", "tokens per round", "rounds", "spec_runs"),
        places=("settings", "differences", "gammas", "versions", "compare"),
    ),
    Measure(
        *("tokens_per_round_expected", "tokens per round, predicted from alpha", "rounds"),
        places=("gammas",),
        color="orange",
        marker="^",
    ),
    Measure("proposed_per_token", "drafted tokens per emitted token", "rounds", places=("differences",)),
    Measure("untested_share", "share of drafted tokens never tested", "rounds", places=("differences",)),
    Measure(
        *("speedup", "measured speedup (verifier alone = 1)", "speed", "spec_runs"),
        short="speedup",
        places=("settings", "differences", "gammas", "compare", "summary"),
    ),
    *(
        Measure(name, label, "theory", table, places=("settings", "gammas"), color=color, marker=marker)
        for name, label, table, color, marker in (
            ("theoretical_speedup_flops", "theory: alpha, cost from FLOPs", "spec_runs", "green", "s"),
            ("theoretical_speedup_time", "theory: alpha, cost from step times", "spec_runs", "orange", "^"),
            ("theoretical_speedup_full", "theory: alpha, every measured cost", "spec_runs", "pink", "v"),
            ("theoretical_speedup_acceptance_rate", "theory fed accepted / proposed (the series' way)", "", "sky", "P"),
        )
    ),
    Measure("cost_ratio_flops", "c from FLOPs", "cost", "spec_runs", digits=3, places=("settings", "gammas")),
    Measure("cost_ratio_time", "c from step times", "cost", "spec_runs", digits=3, places=("settings", "gammas")),
    Measure("target_efficiency", "target efficiency", "cost", "spec_runs", places=("settings", "gammas")),
    Measure("tokens_per_s", "tokens per second", "speed", "spec_runs", digits=1, places=("settings", "compare")),
    *(
        Measure(f"breakeven_alpha_{cost}", f"break-even alpha, {words}", "cost", places=("gammas",), color=c, marker=m)
        for cost, words, c, m in (
            ("flops", "c from FLOPs", "green", "s"),
            ("time", "c from step times", "orange", "^"),
            ("full", "every measured cost", "pink", "v"),
        )
    ),
    *(
        Measure(f"{part}_time_share", f"share of a round's time: {part}", "cost", "spec_runs", places=("gammas",))
        for part in ("draft", "verify", "overhead")
    ),
    Measure("entropy_link", "draft entropy and expected acceptance, Spearman within a prompt (median)", "tokens"),
    *(
        Measure(name, label, "sinks")
        for name, label in (
            ("first_position_z_score", "z-score of position 0"),
            ("attention_received", "attention per visible query"),
            ("attention_window", "attention from the last prompt positions"),
            ("attention_from_generated", "attention from the answer's tokens"),
        )
    ),
    _claimed("boundary_z_score", "z-score of the boundary's template tokens by attention received"),
    _claimed("boundary_z_window", "z-score of the boundary's template tokens by window attention"),
    _claimed("boundary_z_generated", "z-score of the boundary's template tokens by attention from the answer"),
    _claimed("first_token_attention", "attention from the last prompt positions to the first token (mean over heads)"),
    _claimed("commitment_entropy_bits", "entropy where a word begins minus where it continues (bits)"),
    _claimed("bound_violated", "share of tokens under the entropy bound"),
    _claimed("speedup_over_theory_flops", "measured speedup over theory with alpha and c from FLOPs"),
    _claimed("speedup_over_theory_time", "measured speedup over theory with alpha and c from step times"),
    _claimed("speedup_over_theory_full", "measured speedup over theory with alpha and every measured cost"),
    _claimed("speedup_over_theory_acceptance_rate", "measured speedup over theory fed accepted / proposed"),
    _token("draft_entropy", "draft entropy"),
    _token("draft_top_prob", "top probability of the draft"),
    _token("draft_top_margin", "top-2 margin of the draft"),
    _token("drafted_prob", "probability of the drafted token"),
    _token("entropy_bound", "entropy bound"),
    _token("entropy_bits", "verifier entropy (bits)"),
    _token("draft_entropy_bits", "draft entropy (bits)"),
    _token("verifier_entropy_bits", "verifier entropy (bits)"),
    _token("expected_accept", "expected acceptance of the token"),
    _token("accepted", "acceptance of tested tokens (1 or 0)"),
    _token("auroc", "AUROC"),
    _token("brier_score", "Brier score"),
    _token("calibration_error", "calibration error"),
)
MEASURES = {measure.name: measure for measure in _DECLARED}


def measures_of(subject: Subject) -> tuple[str, ...]:
    """The names of the measures of a subject."""
    return tuple(name for name, measure in MEASURES.items() if measure.of == subject)


def measures_in(place: Place, table: str | None = None) -> tuple[str, ...]:
    """The names of the measures that are asked about in a place, those of one table if it is given."""
    asked = (m for m in _DECLARED if place in m.places)
    return tuple(m.name for m in asked if table is None or m.table == table)


CONTEXT_MEASURES, ACCEPTANCE_MEASURES = measures_of("context"), measures_of("acceptance")
THEORIES = measures_of("theory")
PRIMARY_CONTEXT_MEASURE, ENTROPY_MEASURE = "context_health_soft", "mean_entropy_bits"
PRIMARY_ACCEPTANCE_MEASURE = "alpha_expected"


def label(name: str) -> str:
    """A measure's name as figures and tables show it, with its unit and setting; one that is not declared as it is."""
    base, at, setting = name.partition("@")
    words = MEASURES[base].label if base in MEASURES else base
    return f"{words}, {setting.replace('gamma', 'gamma ').replace(',', ', ')}" if at else words


def phrase(name: str) -> str:
    """A measure's name in a sentence: its label without what stands in brackets."""
    return re.sub(r" \(.*?\)+", "", label(name))


def short(name: str) -> str:
    """A measure's name at the head of a narrow column."""
    return MEASURES[name].short or phrase(name)


SETTING_KEYS = tuple(f.name for f in fields(Setting))
# What names a setting among others; a threshold is named with its rule.
_NAMING_KEYS = ("gamma", "proposer", "stop", "temperature", "top_p")


def setting_suffixes(settings: list[Setting]) -> dict[Setting, str]:
    """What is added to a measure's name to say which setting it belongs to: nothing where there is only one.

    Only the keys that vary are named: `@gamma4`, `@gamma4,stop=entropy 0.5,temperature=0.7`.
    """
    named = {setting: {key: _value(setting, key) for key in _NAMING_KEYS} for setting in settings}
    varying = [key for key in _NAMING_KEYS if len({values[key] for values in named.values()}) > 1]
    return {setting: _suffix({key: values[key] for key in varying}) for setting, values in named.items()}


def _value(setting: Setting, key: str) -> str:
    return setting.rule if key == "stop" else str(getattr(setting, key))


def _suffix(named: Mapping[str, str]) -> str:
    parts = [f"gamma{value}" if key == "gamma" else f"{key}={value}" for key, value in named.items()]
    return "@" + ",".join(parts) if parts else ""


def setting_name(setting: Setting, suffixes: Mapping[Setting, str]) -> str:
    """A setting as figures and tables call it: the keys that vary, else its gamma."""
    varying = suffixes[setting].removeprefix("@")
    return varying.replace("gamma", "gamma ").replace(",", ", ") if varying else f"gamma {setting.gamma}"


def primary_setting(settings: list[Setting], wanted: Setting) -> Setting | None:
    """The setting that claims and single-setting figures speak about: `wanted`, else the nearest; None if none ran.

    Nearest in gamma comes first, then the one that shares the most other keys, then the order of settings.
    """

    def distance(setting: Setting) -> tuple[int, int, Setting]:
        n_other = sum(getattr(setting, key) != getattr(wanted, key) for key in SETTING_KEYS)
        return abs(setting.gamma - wanted.gamma), n_other, setting

    return min(settings, key=distance, default=None)


def of_other_gammas(settings: Iterable[Setting], setting: Setting) -> list[Setting]:
    """The settings that differ from this one in gamma alone, itself included, in order of gamma."""
    return sorted(other for other in settings if replace(other, gamma=setting.gamma) == setting)
