"""The measures that the analysis relates, with the words and units that figures and tables show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace

from specstudy.setting import Setting

CONTEXT_MEASURES = (
    "context_health_soft",
    "context_health",
    "context_health_window",
    "structural_share",
    "boundary_attention_entropy",
    "sink_rate",
    "prompt_nll_bits",
    "n_tokens",
)
PRIMARY_CONTEXT_MEASURE = "context_health_soft"
ENTROPY_MEASURE = "mean_entropy_bits"
ACCEPTANCE_MEASURES = ("acceptance_rate", "alpha", "alpha_expected")
PRIMARY_ACCEPTANCE_MEASURE = "alpha_expected"
SPEED_MEASURES = (
    "speedup",
    "theoretical_speedup_flops",
    "theoretical_speedup_time",
    "theoretical_speedup_full",
    "theoretical_speedup_acceptance_rate",
)
COST_MEASURES = ("tokens_per_round", "target_efficiency", "cost_ratio_flops", "cost_ratio_time", "tokens_per_s")

_LABELS = {
    "context_health_soft": "soft context health (0 to 10)",
    "context_health": "context health (0 to 10)",
    "context_health_window": "window context health (0 to 10)",
    "structural_share": "share of attention on structural tokens",
    "boundary_attention_entropy": "attention entropy at the boundary (normalised)",
    "sink_rate": "sink rate (share of heads)",
    "prompt_nll_bits": "prompt surprise (bits per token)",
    "first_position_z_score": "z-score of position 0",
    "n_tokens": "prompt length (tokens)",
    "boundary_z_score": "z-score of the boundary's template tokens by attention received",
    "boundary_z_window": "z-score of the boundary's template tokens by window attention",
    "boundary_z_generated": "z-score of the boundary's template tokens by attention from the answer",
    "first_token_attention": "attention from the last prompt positions to the first token (mean over heads)",
    "commitment_entropy_bits": "entropy where a word begins minus where it continues (bits)",
    "draft_top_prob": "top probability of the draft",
    "draft_top_margin": "top-2 margin of the draft",
    "draft_entropy": "draft entropy",
    "drafted_prob": "probability of the drafted token",
    "entropy_bound": "entropy bound",
    "bound_violated": "share of tokens under the entropy bound",
    "speedup_over_theory_flops": "measured speedup over theory with alpha and c from FLOPs",
    "speedup_over_theory_time": "measured speedup over theory with alpha and c from step times",
    "speedup_over_theory_full": "measured speedup over theory with alpha and every measured cost",
    "speedup_over_theory_acceptance_rate": "measured speedup over theory fed accepted / proposed",
    "mean_sampling_entropy_bits": "mean entropy of the distribution sampled from (bits)",
    "mean_expected_accept": "expected acceptance on the verifier's own text",
    "mean_entropy_bits": "mean entropy of the answer (bits)",
    "acceptance_rate": "acceptance rate (accepted / proposed)",
    "alpha": "alpha (accepted / tested)",
    "alpha_expected": "expected alpha (sum of min(p, q))",
    "speedup": "measured speedup (verifier alone = 1)",
    "theoretical_speedup_flops": "theory: alpha, cost from FLOPs",
    "theoretical_speedup_time": "theory: alpha, cost from step times",
    "theoretical_speedup_full": "theory: alpha, every measured cost",
    "theoretical_speedup_acceptance_rate": "theory fed accepted / proposed (as in mayankpallai 2026)",
    "tokens_per_round": "tokens per round",
    "tokens_per_round_expected": "tokens per round, predicted from alpha",
    "proposed_per_token": "drafted tokens per emitted token",
    "untested_share": "share of drafted tokens never tested",
    "breakeven_alpha_flops": "break-even alpha, c from FLOPs",
    "breakeven_alpha_time": "break-even alpha, c from step times",
    "breakeven_alpha_full": "break-even alpha, every measured cost",
    "draft_time_share": "share of a round's time: draft",
    "verify_time_share": "share of a round's time: verify",
    "overhead_time_share": "share of a round's time: overhead",
    "target_efficiency": "target efficiency",
    "cost_ratio_flops": "c from FLOPs",
    "cost_ratio_time": "c from step times",
    "tokens_per_s": "tokens per second",
    "entropy_bits": "verifier entropy (bits)",
    "draft_entropy_bits": "draft entropy (bits)",
    "verifier_entropy_bits": "verifier entropy (bits)",
    "expected_accept": "expected acceptance of the token",
    "accepted": "acceptance of tested tokens (1 or 0)",
}


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


def base_measure(name: str) -> str:
    """The measure's name without its setting: `alpha@gamma4` -> `alpha`."""
    return name.partition("@")[0]


def phrase(name: str) -> str:
    """A measure's name in a sentence: its label without what stands in brackets."""
    return re.sub(r" \(.*?\)+", "", label(name))


def label(name: str) -> str:
    """A measure's name as figures and tables show it, with its unit and setting."""
    base, at, setting = name.partition("@")
    words = _LABELS.get(base, base)
    return f"{words}, {setting.replace('gamma', 'gamma ').replace(',', ', ')}" if at else words
