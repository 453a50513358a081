"""What a prompt is, before and after the chat template."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """What somebody (system, user or assistant) says in a conversation."""

    role: str
    content: str

    @property
    def is_empty_system(self) -> bool:
        return self.role == "system" and not self.content.strip()


STRUCTURAL, CONTENT = "structural", "content"
"""The keys that a version scores lower."""


@dataclass(frozen=True)
class Version:
    """Which version of which prompt this is, and with which it is compared (None: it is the unaltered one).

    `hidden` names a position (first, boundary or random) that later queries of the verifier cannot see, nor of the
    draft if `hidden_from_both`. `lowered` names a key (structural: the one most attended to in a head; content: a
    random one) whose score is lowered by `lowered_by`, in the draft too if `lowered_in_both`. `temperature` and
    `draft_temperature` stand for the configured ones where given.
    """

    original_id: str
    kind: str
    dose: int = 0
    control_id: str | None = None
    hidden: str | None = None
    hidden_from_both: bool = False
    lowered: str | None = None
    lowered_by: float | None = None
    lowered_in_both: bool = False
    temperature: float | None = None
    draft_temperature: float | None = None

    @property
    def name(self) -> str:
        """The kind with its dose."""
        return self.kind if self.dose == 0 else f"{self.kind}{self.dose}"

    @property
    def alters_the_models(self) -> bool:
        """Whether the text is that of the unaltered version, and only how it is answered differs."""
        return any(imposed is not None for imposed in (self.hidden, self.lowered, self.temperature))


@dataclass(frozen=True)
class Prompt:
    """What the user wants answered, an optional system text (None: the template decides; "": an empty one), and what
    the user and the assistant said before. `version` is None for a prompt that is no version of another. Prompts of one
    `group` are not independent of each other."""

    prompt_id: str
    category: str
    text: str
    system: str | None = None
    history: tuple[Message, ...] = ()
    version: Version | None = None
    group: str | None = None

    @property
    def seed_id(self) -> str:
        """What stands for this prompt in seeds: versions of one prompt are compared on the same random numbers."""
        return self.version.original_id if self.version else self.prompt_id

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation in order."""
        system = () if self.system is None else (Message("system", self.system),)
        return (*system, *self.history, Message("user", self.text))

    @property
    def n_characters(self) -> int:
        """How long the whole conversation is, without what a template adds."""
        return sum(len(message.content) for message in self.messages)


@dataclass(frozen=True)
class Position:
    """A token of a rendered prompt.

    `role` says who wrote it: system, user, assistant, or template. `structural_role` is None for content, else the part
    that it plays: bos, first (position 0 that is content otherwise), role_marker, role_name, role_newline,
    system_prompt (one that nobody wrote, or what the template adds to somebody's), end_marker, end_newline, or
    generation_prompt+0, +1 and so on.
    """

    token_id: int
    role: str
    structural_role: str | None

    @property
    def is_structural(self) -> bool:
        return self.structural_role is not None


@dataclass(frozen=True)
class RenderedPrompt:
    """A prompt as the model sees it.

    `generation_prompt` is how the template opens the answer, `<think>` included; `notes` say, each in a line, what the
    template did besides putting the prompt in its place.
    """

    prompt: Prompt
    text: str
    positions: tuple[Position, ...]
    generation_prompt: str = ""
    notes: tuple[str, ...] = ()

    @property
    def token_ids(self) -> list[int]:
        return [p.token_id for p in self.positions]

    @property
    def keys(self) -> dict[str, str]:
        """What every row about the prompt begins with."""
        return {"prompt_id": self.prompt.prompt_id, "category": self.prompt.category}
