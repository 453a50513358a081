"""When something was measured, and how many processes wanted the CPU then."""

from __future__ import annotations

import os
from datetime import datetime


def now() -> str:
    """The time in ISO 8601 with its zone, to the second."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def load_average() -> float | None:
    """Processes wanting the CPU, mean over the last minute; None where the system does not say."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None
