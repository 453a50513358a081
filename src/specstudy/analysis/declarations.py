"""The declared claims as data: what is claimed, how it is tested, and what decides. Rules: the head of claims.yaml."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import resources
from typing import Any, Literal

import yaml

Direction = Literal["greater", "less", "equivalent"]


@dataclass(frozen=True)
class Declaration:
    """A claim as declared; `link` names the link of the chain that it speaks about, if any.

    `declared`: the date of its present form. `seen_on`: prompt sets whose results bore on it and were known by then.
    """

    id: str
    family: str
    statement: str
    source: str
    test: Mapping[str, Any]
    direction: Direction
    margin: float
    declared: date
    seen_on: Sequence[str]
    reference: float = 0.0
    link: str | None = None

    @property
    def boundaries(self) -> tuple[float, ...]:
        """The values of the effect at which the verdict turns: one, or two for an equivalence."""
        below, above = self.reference - self.margin, self.reference + self.margin
        return {"greater": (above,), "less": (below,), "equivalent": (below, above)}[self.direction]


def declarations() -> list[Declaration]:
    """The claims of claims.yaml, in its order."""
    return [Declaration(**entry) for entry in yaml.safe_load(_file())]


def declarations_sha256() -> str:
    """SHA-256 of claims.yaml: shows in a manifest which declarations a run was answered by."""
    return hashlib.sha256(_file()).hexdigest()


def _file() -> bytes:
    return resources.files("specstudy.analysis").joinpath("claims.yaml").read_bytes()
