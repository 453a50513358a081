"""One way of speculating. A configuration lists several values; each combination of them is one condition."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Condition:
    """The keys that the spec tables carry; `stop_threshold` is None where nothing ends a draft early."""

    gamma: int
    proposer: str
    stop: str
    temperature: float
    top_p: float
    stop_threshold: float | None = None

    @property
    def rule(self) -> str:
        """The stop rule with its threshold: `none`, `entropy 0.5`."""
        return self.stop if self.stop_threshold is None else f"{self.stop} {self.stop_threshold:g}"


STUDY_CONDITION = Condition(gamma=4, proposer="model", stop="none", temperature=0.7, top_p=0.9)
"""What a study runs unless told otherwise."""
