"""How one nested configuration differs from another, by dotted keys."""

from __future__ import annotations

import json
from collections.abc import Mapping


def flatten(config: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Nested mappings as one, `{"spec": {"gamma": 4}}` as `{"spec.gamma": 4}`; lists and empty mappings are values."""
    flat: dict[str, object] = {}
    for name, value in config.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{key}.")
        else:
            flat[key] = value
    return flat


def differences(config: Mapping[str, object], defaults: Mapping[str, object]) -> dict[str, tuple[object, object]]:
    """Dotted keys whose values differ, with (value, default); a key that one side lacks counts as None there."""
    ours, theirs = flatten(config), flatten(defaults)
    keys = [*ours, *(key for key in theirs if key not in ours)]
    return {key: (ours.get(key), theirs.get(key)) for key in keys if ours.get(key) != theirs.get(key)}


def override_text(value: object) -> str:
    """A value as one would write it in an override; a list of one is written as that one."""
    if isinstance(value, list):
        items = ",".join(map(override_text, value))
        return items if len(value) == 1 else f"[{items}]"
    return value if isinstance(value, str) else json.dumps(value)
