"""What the program checked of itself, as rows that the page and the terminal show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_MEANINGS = {
    "verifier_logits": "verifier: logits with a cache against logits without, in rounds of real generations",
    "draft_logits": "draft: logits with a cache against logits without, in rounds of real generations",
    "greedy": "greedy decoding, speculative and plain, writes what passes without a cache say",
    "distribution": "sampled tokens follow the verifier's own distribution (Kolmogorov-Smirnov)",
    "attention": "attention as it runs here against explicit attention in float32",
}


@dataclass(frozen=True)
class CheckRow:
    """One check: what it compares, whether it passed (None where a stage of an older run failed in some check and does
    not say in which), what was measured."""

    stage: str
    meaning: str
    passed: bool | None
    measured: str


def check_rows(manifest: Mapping[str, Any]) -> Iterator[CheckRow]:
    """The checks of every stage in the manifest; one that broke off is a row with its error."""
    for stage, outcome in manifest.get("self_checks", {}).items():
        if "error" in outcome:
            yield CheckRow(stage, "the check broke off", False, str(outcome["error"]))
        for name, values in outcome.items():
            if isinstance(values, Mapping):
                yield CheckRow(
                    stage,
                    _MEANINGS.get(name, f"the models as altered: {_words(name)}"),
                    values.get("passed", outcome.get("passed") or None),
                    _measured(values),
                )


def checks_sentence(manifest: Mapping[str, Any]) -> str:
    """How the self-checks came out, and what lists them."""
    rows = [*check_rows(manifest)]
    if not rows:
        return "Self-checks: none was run."
    if failed := [row for row in rows if not row.passed]:
        which = "; ".join(row.meaning for row in failed if row.passed is False) or "this older run does not say which"
        return f"Self-checks: FAILED: {which}. `make show checks` has the numbers."
    return f"Self-checks: {len(rows)} passed (`make show checks`)."


def _measured(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{_words(key)} {_shown(value)}" for key, value in values.items() if key != "passed" and value is not None
    )


def _words(name: str) -> str:
    return name.removeprefix("n_").replace("_", " ").replace("rms", "RMS")


def _shown(value: object) -> str:
    if isinstance(value, list):
        return " and ".join(map(_words, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)
