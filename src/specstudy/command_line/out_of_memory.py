"""Memory that ran out, wherever it did: told apart from bugs without importing torch for it."""

from __future__ import annotations

import errno

LIBRARY_NOT_LOADED = ("failed to map segment", "cannot allocate memory")


def line_for(error: BaseException) -> str | None:
    """The line for an error that comes of memory running out, directly or behind others; None for any other."""
    cause: BaseException | None = error
    while isinstance(cause, Exception):
        if _says_so(cause):
            return _line(cause)
        cause = cause.__cause__ or cause.__context__
    return None


def _says_so(error: Exception) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    if isinstance(error, OSError | ImportError):  # the loader of shared libraries has words for it only
        return any(words in str(error).lower() for words in LIBRARY_NOT_LOADED)
    if not isinstance(error, RuntimeError):
        return False
    from specstudy.models.device import is_out_of_memory

    return is_out_of_memory(error)


def _line(error: Exception) -> str:
    try:
        from specstudy.models.device import out_of_memory_line
    except Exception:  # what ran out is missing for this too
        return "the memory of this machine ran out before anything was loaded; close other programs"
    return out_of_memory_line(error)
