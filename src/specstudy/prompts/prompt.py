"""What a prompt is, before and after the chat template."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prompt:
    """What the user wants answered, and an optional system text (None: the template decides; "": an empty one)."""

    prompt_id: str
    category: str
    text: str
    system: str | None = None


@dataclass(frozen=True)
class Position:
    """A token of a rendered prompt.

    `role` says who wrote it: system, user, or template. `structural_role` is None for content, else the part that it
    plays: bos, first (position 0 that is content otherwise), role_marker, role_name, role_newline, system_prompt (one
    that nobody wrote), end_marker, end_newline, or generation_prompt+0, +1 and so on.
    """

    token_id: int
    role: str
    structural_role: str | None

    @property
    def is_structural(self) -> bool:
        return self.structural_role is not None


@dataclass(frozen=True)
class RenderedPrompt:
    """A prompt as the model sees it; `generation_prompt` is how the template opens the answer, `<think>` included."""

    prompt: Prompt
    text: str
    positions: tuple[Position, ...]
    generation_prompt: str = ""

    @property
    def token_ids(self) -> list[int]:
        return [p.token_id for p in self.positions]
