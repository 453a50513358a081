"""Files that appear whole or not at all: written beside their place under a temporary name, synced, then renamed."""

from __future__ import annotations

import logging
import os
import re
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from specstudy.errors import UserError

log = logging.getLogger(__name__)

_STALE_AFTER_S = 3600.0
_HOST = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:40]
_TEMPORARY_NAME = re.compile(r"\..+\.(?P<host>[A-Za-z0-9-]*)\.(?P<pid>\d+)\.[0-9a-f]{8}\.tmp")


def temporary_path(path: Path) -> Path:
    """A name nobody else uses, in the same directory: renaming never crosses file systems, and tells whose it is."""
    return path.with_name(f".{path.name}.{_HOST}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp")


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file open for writing that takes its place at `path` only when the block ends well.

    Directories above it are made. Raises UserError where the disk is full, read-only or otherwise refuses; whatever
    is raised, nothing half written is left and an earlier file at `path` stays as it was.
    """
    temporary = temporary_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_directory(path.parent)
    except BaseException as fault:
        _discard(temporary)
        if isinstance(fault, OSError):
            raise cannot_write(path, fault) from fault
        raise


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a small file whole or not at all. Raises UserError as `atomic_file` does."""
    with atomic_file(path) as file:
        file.write(content)


def cannot_write(path: Path, fault: OSError) -> UserError:
    """The one line for a write that the system refused."""
    remedy = "free space there"
    if isinstance(fault, IsADirectoryError | FileExistsError | NotADirectoryError):
        # A directory where a file belongs; a file, or a link to nowhere, where a directory does.
        places = [path] if path.is_dir() else [place for place in path.parents if not place.is_dir()]
        remedy = next((f"remove {place}" for place in reversed(places) if os.path.lexists(place)), remedy)
    return UserError(f"cannot write {path}: {fault.strerror or fault}; {remedy} or choose another output_dir")


def move_aside(path: Path, fault: Exception) -> None:
    """Takes a file that cannot be trusted out of the way, keeping it as `<name>.rejected`, and says so."""
    aside = path.with_name(f"{path.name}.rejected")
    try:
        os.replace(path, aside)
    except OSError:
        # Another process may have done it already; where nothing can be moved, writing the new file will say why.
        aside = path
    log.warning("%s is damaged or foreign (%s) and is made again; the old file: %s", path, _first_line(fault), aside)


def is_abandoned(path: Path) -> bool:
    """Whether a file is the leftover of a writer that was killed: its process is gone.

    A process number says something on this machine only; on a shared disk the files of others are judged by age, an
    hour, which no clock that is set meanwhile can do to a file that this machine is writing.
    """
    match = _TEMPORARY_NAME.fullmatch(path.name)
    if match is None:
        return False
    if match["host"] == _HOST:
        return not _is_running(int(match["pid"]))
    try:
        return time.time() - path.lstat().st_mtime > _STALE_AFTER_S
    except FileNotFoundError:
        return False


def remove_abandoned(directory: Path) -> None:
    """Removes the leftovers of killed writers in a directory and all below it; does nothing where it may not."""
    for path in directory.rglob(".*.tmp"):
        if is_abandoned(path):
            _discard(path)


def _discard(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        # A leftover is never read, so failing to remove it harms nothing and must not hide the first error.
        return


def _first_line(fault: Exception) -> str:
    return next(iter(str(fault).splitlines()), type(fault).__name__)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _sync_directory(directory: Path) -> None:
    """Makes a rename survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
