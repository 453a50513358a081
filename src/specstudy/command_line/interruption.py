"""Ctrl-C while modules are still being imported ends in a line too. Imported before all that takes time to import."""

from __future__ import annotations

import os
import sys
from types import TracebackType

INTERRUPTED = 130
MESSAGE = "interrupted; the same command goes on from here"


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        print(MESSAGE, file=sys.stderr, flush=True)
        os._exit(INTERRUPTED)
    sys.__excepthook__(kind, error, trace)


sys.excepthook = _hook
