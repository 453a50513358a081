"""Rules for settings: what a value may be, and the one line that says so when it is not."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from specstudy.errors import UserError

NOT_SET = "???"  # how a YAML file says that the user must give this value


@dataclass(frozen=True)
class Rule:
    """What a setting may be: `read` returns the value to keep or raises ValueError; `wanted` tells the user."""

    wanted: str
    read: Callable[[object], object]


def _kept_if(holds: Callable[[Any], object], wanted: str) -> Rule:
    """A value that stays as it is where something holds of it."""

    def read(value: object) -> object:
        if not holds(value):
            raise ValueError
        return value

    return Rule(wanted, read)


def whole(low: int, high: int, *, multiple_of: int = 1) -> Rule:
    """An integer from low to high."""
    kind = "an integer" if multiple_of == 1 else f"a multiple of {multiple_of}"
    return _kept_if(
        lambda value: _is_integer(value) and low <= value <= high and value % multiple_of == 0,
        f"{kind} from {low} to {high}",
    )


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


SMALLEST_TEMPERATURE = 1e-4


def temperature_rule() -> Rule:
    """A sampling temperature: 0 (greedy), or so large that logits divided by it stay finite in float32."""
    in_range = real(0, 5)
    large_enough = _kept_if(
        lambda number: not 0 < number < SMALLEST_TEMPERATURE, f"0, or a number from {SMALLEST_TEMPERATURE:g} to 5"
    )
    return Rule(large_enough.wanted, lambda value: large_enough.read(in_range.read(value)))


def real(low: float, high: float = math.inf, *, above_low: bool = False, below_high: bool = False) -> Rule:
    """A finite number from low to high; each end can be left out of the range."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError
        number = float(value)
        high_enough = number > low if above_low else number >= low
        low_enough = number < high if below_high else number <= high
        if not (math.isfinite(number) and high_enough and low_enough):
            raise ValueError
        return number

    lower = f"above {low:g}" if above_low else f"of at least {low:g}"
    upper = "" if high == math.inf else f" and {'below' if below_high else 'at most'} {high:g}"
    return Rule(f"a number {lower}{upper}", read)


_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
TEXT = _kept_if(lambda value: isinstance(value, str) and value.strip(), "a string")
TEXT_OR_NUMBER = Rule("a string", lambda value: str(value) if _is_integer(value) else TEXT.read(value))
LABEL = _kept_if(  # it goes into folder names
    lambda value: isinstance(value, str) and _LABEL.fullmatch(value),
    "a name of letters, digits, dots, dashes and underscores",
)
FLAG = _kept_if(lambda value: isinstance(value, bool), "true or false")


def one_of(*choices: str) -> Rule:
    """One of some words."""
    return _kept_if(lambda value: isinstance(value, str) and value in choices, f"one of {', '.join(choices)}")


def one_or_more(rule: Rule, *, distinct: bool = True) -> Rule:
    """A value, or a list of (distinct) ones; kept as a tuple."""

    def read(value: object) -> tuple[object, ...]:
        listed = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        values = tuple(rule.read(item) for item in listed)
        if not values or (distinct and len(set(values)) != len(values)):
            raise ValueError
        return values

    return Rule(f"{rule.wanted}, or a list of {'distinct ones' if distinct else 'them'} like [a,b]", read)


def optional(rule: Rule) -> Rule:
    """null, or what another rule allows."""
    return Rule(f"{rule.wanted}, or null", lambda value: None if value is None else rule.read(value))


def or_null(rule: Rule) -> Rule:
    """A rule for what may be given as null too, where something else takes its place before the rule is asked."""
    return Rule(f"{rule.wanted}, or null", rule.read)


def setting(default: object, rule: Rule, meaning: str = "") -> Any:
    """A dataclass field with its rule, and what it means; the default obeys the rule like any other value."""
    return field(default=default, metadata={"rule": rule, "meaning": meaning})


@dataclass(frozen=True)
class Section:
    """A group of settings. Making one checks every setting and raises UserError for the first wrong one."""

    NAME: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for setting_field in dataclasses.fields(self):
            rule: Rule | None = setting_field.metadata.get("rule")
            if rule is not None:
                value = getattr(self, setting_field.name)
                object.__setattr__(self, setting_field.name, self._checked(setting_field.name, value, rule))

    def _checked(self, name: str, value: object, rule: Rule) -> object:
        key = f"{self.NAME}.{name}" if self.NAME else name
        if value == NOT_SET:
            raise UserError(f"{key} is not set: give {key}=... ({rule.wanted})")
        try:
            return rule.read(value)
        except (ValueError, OverflowError):
            raise UserError(f"{key} must be {rule.wanted}; got {value!r}") from None
