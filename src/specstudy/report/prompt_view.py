"""One prompt as a reader wants to see it, gathered from the tables: for the page and for the terminal."""

from __future__ import annotations

import difflib
import itertools
import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from specstudy.analysis.join import Tables, frame_of, of_condition, rows_of
from specstudy.condition import Condition
from specstudy.errors import UserError, one_line

ENTROPY_LEVELS = 8
_BITS_A_LEVEL = 0.6
DARKEST_BITS = ENTROPY_LEVELS * _BITS_A_LEVEL
"""The darkest shade stands for so much entropy and more."""
_MASSES = {
    "sink_mass": "position 0",
    "structural_mass": "template",
    "content_mass": "content",
    "own_mass": "answer",
}
_ROUND_COLUMNS = ("round", "token", "kind", "outcome", "draft_entropy_bits", "accept_prob")


@dataclass(frozen=True)
class PromptToken:
    """A position of the prompt; `attention` is relative to the prompt's strongest content position, 0 to 1."""

    position: int
    text: str
    structural_role: str | None
    z_score: float | None
    z_window: float | None
    is_sink: bool
    is_sink_window: bool
    attention: float

    @property
    def is_anomalous(self) -> bool:
        """A sink that the user wrote."""
        return self.is_sink and self.structural_role is None


@dataclass(frozen=True)
class AnswerToken:
    """A token of the verifier's own answer; candidates are (text, probability), likeliest first.

    `masses`: where the query behind it looks, kinds of positions and shares of its attention; empty if not recorded.
    """

    step: int
    text: str
    probability: float
    entropy_bits: float
    draft_entropy_bits: float | None
    expected_accept: float | None
    candidates: tuple[tuple[str, float], ...]
    masses: tuple[tuple[str, float], ...]

    @property
    def level(self) -> int:
        """Entropy as one of the shades 0 to `ENTROPY_LEVELS`."""
        return min(ENTROPY_LEVELS, int(self.entropy_bits / _BITS_A_LEVEL))


@dataclass(frozen=True)
class RoundToken:
    """A token of a speculative round: what became of it is accepted, rejected, untested, correction or bonus."""

    text: str
    fate: str
    draft_entropy_bits: float | None
    accept_prob: float | None


@dataclass(frozen=True)
class Round:
    """One speculative round in order: drafted tokens, then the verifier's."""

    number: int
    tokens: tuple[RoundToken, ...]

    @property
    def n_accepted(self) -> int:
        return sum(token.fate == "accepted" for token in self.tokens)

    @property
    def n_proposed(self) -> int:
        return sum(token.fate in ("accepted", "rejected", "untested") for token in self.tokens)


@dataclass(frozen=True)
class PromptView:
    """Everything measured on one prompt, first repetition; empty parts were not measured.

    `notes` are what the chat template did to the prompt, `failures` what went wrong, by stage. The category of a prompt
    that failed in every stage is not known: it is empty.
    """

    prompt_id: str
    category: str
    prompt: tuple[PromptToken, ...]
    answer: tuple[AnswerToken, ...]
    rounds: tuple[Round, ...]
    health: float | None
    speedup: float | None
    notes: tuple[str, ...]
    failures: tuple[str, ...]


class PromptViews:
    """Views of all prompts of a study; tables are grouped once, so that each view costs its own rows only."""

    def __init__(self, tables: Tables, condition: Condition | None) -> None:
        spec = frame_of(tables, "spec_tokens")
        self._prefill = _by_prompt(frame_of(tables, "prefill_tokens"), "position")
        self._decode = _by_prompt(_first_repetition(_with_masses(tables)), "step")
        rounds = _first_repetition(of_condition(spec, condition)) if condition else spec.iloc[:0]
        self._spec = _by_prompt(rounds.sort_values(["round", "index"], kind="stable"), "round")
        self._health = _measure(frame_of(tables, "prefill_prompts"), "context_health_soft")
        self._notes = _notes(frame_of(tables, "prefill_prompts"))
        runs = frame_of(tables, "spec_runs")
        self._speedup = _measure(
            _first_repetition(of_condition(runs, condition)) if condition else runs.iloc[:0], "speedup"
        )
        self._failures = _failures(frame_of(tables, "errors"))
        self.categories = _categories(tables)

    def view(self, prompt_id: str) -> PromptView:
        """One prompt's view. Raises UserError, naming near ids, for a prompt that the study does not hold."""
        if prompt_id not in self.categories and prompt_id not in self._failures:
            raise unknown_prompt(prompt_id, list(self.categories))
        return PromptView(
            prompt_id,
            self.categories.get(prompt_id, ""),
            _prompt_tokens(self._prefill.get(prompt_id)),
            _answer_tokens(self._decode.get(prompt_id)),
            _rounds(self._spec.get(prompt_id)),
            self._health.get(prompt_id),
            self._speedup.get(prompt_id),
            self._notes.get(prompt_id, ()),
            tuple(self._failures.get(prompt_id, ())),
        )


def unknown_prompt(prompt_id: str, known: list[str]) -> UserError:
    """The one line for an id that the study does not hold."""
    near = difflib.get_close_matches(prompt_id, known, n=3, cutoff=0.5) or known[:3]
    hint = f"; near it: {', '.join(near)}" if near else "; the run holds no prompts yet"
    return UserError(f"id={prompt_id}: no such prompt among the {len(known)} of this run{hint}")


def _categories(tables: Tables) -> dict[str, str]:
    names = ("prefill_prompts", "decode_runs", "spec_runs")
    keys = pd.concat([frame_of(tables, name)[["prompt_id", "category"]] for name in names]).astype(object)
    return dict(keys.drop_duplicates("prompt_id").sort_values("prompt_id").itertuples(index=False, name=None))


def _with_masses(tables: Tables) -> pd.DataFrame:
    """The tokens of the verifier's answers with what the query behind each pays, null where it was not recorded."""
    key = ["prompt_id", "repetition", "step"]
    recorded = frame_of(tables, "decode_attention_steps")[[*key, *_MASSES]]
    return frame_of(tables, "decode_tokens").merge(recorded, on=key, how="left")


def _first_repetition(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[(frame["repetition"] == 0).to_numpy(dtype=bool)]


def _by_prompt(frame: pd.DataFrame, order: str) -> dict[str, pd.DataFrame]:
    ordered = frame.sort_values(order, kind="stable")
    return {str(prompt_id): rows for prompt_id, rows in ordered.groupby("prompt_id", observed=True)}


def _measure(frame: pd.DataFrame, column: str) -> dict[str, float]:
    known = frame[frame[column].notna().to_numpy(dtype=bool)]
    return {str(prompt_id): float(value) for prompt_id, value in zip(known["prompt_id"], known[column], strict=True)}


def _notes(frame: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    return {
        str(prompt_id): tuple(map(str, notes))
        for prompt_id, notes in zip(frame["prompt_id"], frame["rendering_notes"], strict=True)
        if pd.api.types.is_list_like(notes)
    }


def _failures(errors: pd.DataFrame) -> dict[str, list[str]]:
    failures: dict[str, list[str]] = {}
    for row in rows_of(errors):
        line = one_line(f"failed in {row.stage}: {row.kind}: {row.message}", 2_000)
        failures.setdefault(str(row.prompt_id), []).append(line)
    return failures


def _prompt_tokens(rows: pd.DataFrame | None) -> tuple[PromptToken, ...]:
    if rows is None:
        return ()
    content = rows[~rows["is_structural"].to_numpy(dtype=bool)]
    strongest = content["attention_received"].max() if len(content) else rows["attention_received"].max()
    return tuple(
        PromptToken(
            position=int(row.position),
            text=str(row.token),
            structural_role=None if pd.isna(row.structural_role) else str(row.structural_role),
            z_score=optional(row.z_score),
            z_window=optional(row.z_window),
            is_sink=not pd.isna(row.is_sink) and bool(row.is_sink),
            is_sink_window=not pd.isna(row.is_sink_window) and bool(row.is_sink_window),
            attention=min(1.0, float(row.attention_received / strongest)),
        )
        for row in rows_of(rows)
    )


def _answer_tokens(rows: pd.DataFrame | None) -> tuple[AnswerToken, ...]:
    if rows is None:
        return ()
    return tuple(
        AnswerToken(
            step=int(row.step),
            text=str(row.token),
            probability=math.exp(float(row.logprob)),
            entropy_bits=float(row.entropy_bits),
            draft_entropy_bits=optional(row.draft_entropy_bits),
            expected_accept=optional(row.expected_accept),
            candidates=tuple((str(token), float(p)) for token, p in zip(row.top_tokens, row.top_probs, strict=True)),
            masses=tuple((w, float(m)) for name, w in _MASSES.items() if (m := getattr(row, name)) == m),
        )
        for row in rows_of(rows)
    )


def _rounds(rows: pd.DataFrame | None) -> tuple[Round, ...]:
    if rows is None:
        return ()
    by_round = itertools.groupby(rows_of(rows[list(_ROUND_COLUMNS)]), key=lambda row: int(row.round))
    return tuple(Round(number, tuple(map(_round_token, tokens))) for number, tokens in by_round)


def _round_token(row: Any) -> RoundToken:
    fate = str(row.outcome) if row.kind == "draft" else str(row.kind)
    return RoundToken(str(row.token), fate, optional(row.draft_entropy_bits), optional(row.accept_prob))


def optional(value: Any) -> float | None:
    """A cell as a float, or None where it is null."""
    return None if pd.isna(value) else float(value)
