"""Where the store keeps its files: a local directory, or any file system that pyarrow opens by URI (s3://, hdfs://).

Both give and take whole files under relative names: a reader sees all of a file or none of it.
"""

from __future__ import annotations

import logging
import os
import uuid
from pathlib import Path
from typing import Protocol

from pyarrow import ArrowException, fs

from specstudy.errors import UserError
from specstudy.tables.files import move_aside, remove_abandoned, write_atomically

log = logging.getLogger(__name__)

OBJECT_STORES = ("s3", "gcs", "abfs")
"""File systems where an object appears when its upload ends: one PUT stands for writing, syncing and renaming."""


class Place(Protocol):
    """A directory of whole files."""

    def read(self, name: str) -> bytes | None:
        """A file's content, or None if there is none. Raises UserError if it cannot be read."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Make or replace a file, whole or not at all. Raises UserError if it cannot be written."""
        ...

    def exists(self, name: str) -> bool:
        """Whether there is a file of that name."""
        ...

    def reject(self, name: str, fault: Exception) -> None:
        """Take a file that cannot be trusted out of the way, with a warning."""
        ...

    def shown(self, name: str) -> str:
        """The file as a person can find it."""
        ...


def open_place(root: Path | str) -> Place:
    """The directory at a path or URI (a string with `://`). Raises UserError for a URI that pyarrow cannot open."""
    return RemotePlace(root) if isinstance(root, str) and "://" in root else LocalPlace(Path(root))


class LocalPlace:
    """A local directory. Opening it removes what killed writers left behind."""

    def __init__(self, root: Path) -> None:
        self._root = root
        remove_abandoned(root)

    def read(self, name: str) -> bytes | None:
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None
        except IsADirectoryError as fault:
            self.reject(name, fault)
            return None
        except OSError as fault:
            why = f"{fault.strerror or fault}; remove it or choose another execution.store"
            raise UserError(f"cannot read {self._root / name}: {why}") from fault

    def write(self, name: str, content: bytes) -> None:
        write_atomically(self._root / name, content)

    def exists(self, name: str) -> bool:
        return (self._root / name).is_file()

    def reject(self, name: str, fault: Exception) -> None:
        move_aside(self._root / name, fault)

    def shown(self, name: str) -> str:
        return str(self._root / name)


class RemotePlace:
    """A directory of a file system that is named by a URI, with credentials from where that system looks for them."""

    def __init__(self, uri: str) -> None:
        self._uri = uri.rstrip("/")
        try:
            self._files, self._root = fs.FileSystem.from_uri(self._uri)
        except (ArrowException, OSError, ValueError) as fault:
            raise UserError(f"execution.store={_public(uri)} cannot be opened: {_line(fault)}") from fault
        if not self._root:
            raise UserError(f"execution.store={_public(uri)} cannot be opened: it names no bucket or directory")

    def read(self, name: str) -> bytes | None:
        try:
            with self._files.open_input_stream(self._path(name)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None
        except OSError as fault:
            raise UserError(f"cannot read {self.shown(name)}: {_line(fault)}") from fault

    def write(self, name: str, content: bytes) -> None:
        path = self._path(name)
        try:
            if self._files.type_name in OBJECT_STORES:
                self._put(path, content)
            else:
                temporary = f"{path}.{uuid.uuid4().hex}.tmp"
                self._files.create_dir(os.path.dirname(path), recursive=True)
                self._put(temporary, content)
                self._files.move(temporary, path)
        except OSError as fault:
            raise UserError(f"cannot write {self.shown(name)}: {_line(fault)}") from fault

    def exists(self, name: str) -> bool:
        return bool(self._files.get_file_info(self._path(name)).type == fs.FileType.File)

    def reject(self, name: str, fault: Exception) -> None:
        try:
            self._files.move(self._path(name), f"{self._path(name)}.rejected")
        except OSError:
            log.debug("%s cannot be moved aside; writing the new file will say why", self.shown(name))
        log.warning("%s is damaged or foreign (%s) and is made again", self.shown(name), _line(fault))

    def shown(self, name: str) -> str:
        return f"{_public(self._uri)}/{name}"

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _put(self, path: str, content: bytes) -> None:
        with self._files.open_output_stream(path) as stream:
            stream.write(content)


def _public(uri: str) -> str:
    """A URI without the credentials and options that it may hold."""
    scheme, _, rest = uri.partition("?")[0].partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _line(fault: Exception) -> str:
    return " ".join(str(fault).split())[:200] or type(fault).__name__
