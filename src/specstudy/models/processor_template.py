"""The chat template that older processors, of models that also see or hear, keep in a file of its own."""

from __future__ import annotations

import json
from pathlib import Path

NAME = "chat_template.json"


def processor_template(directory: Path) -> str | dict[str, str] | None:
    """What `{"chat_template": ...}` holds, several by name as a dictionary, or None without such a file.

    Raises ValueError for a file that holds anything else.
    """
    if not (directory / NAME).is_file():
        return None
    try:
        held = json.loads((directory / NAME).read_text(encoding="utf-8"))["chat_template"]
        named = {each["name"]: each["template"] for each in held} if isinstance(held, list) else held
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{NAME} holds no chat template") from error
    texts = named.values() if isinstance(named, dict) else [named]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{NAME} holds no chat template")
    return named
