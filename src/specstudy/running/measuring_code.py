"""Which source files a measurement depends on, found from the imports themselves, and a hash of them.

The files are those that a stage's file imports, directly or through others, at the top or inside a function. What is
re-exported by a package's `__init__.py` is followed there; as the parent of a module it holds nothing but imports.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

STAGES = Path(__file__).resolve().parent / "stages"
SOURCE = STAGES.parents[2]
NO_PART_OF_A_NUMBER = {
    "specstudy.running.stage.Records",
    "specstudy.running.stage.Stage",
    "specstudy.running.stage.Unit",
    "specstudy.tables.sinks.at_threshold",
    "specstudy.config.PROJECT_ROOT",
    "specstudy.config.StudyConfig",
    "specstudy.config.local_path",
    "specstudy.errors.UserError",
    "specstudy.errors.no_such",
}
"""Imports that are not followed, all others are: the wiring, messages, what a result's key holds by value, and what is
added to results that are stored already."""


def measuring_files(stage_file: Path, source: Path = SOURCE) -> list[Path]:
    """The files that the numbers of a stage depend on: its own, and all that it imports of ours, however indirectly.

    `source` is where the package lies.
    """
    found: set[Path] = set()
    waiting = [stage_file]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            names = imported_names(file.read_bytes()) - NO_PART_OF_A_NUMBER
            waiting += filter(None, (_file_of(name, source) for name in names))
    return sorted(found)


def code_hash(files: Iterable[Path], root: Path) -> str:
    """SHA-256 over source files: names relative to `root`, and contents with line ends normalised."""
    digest = hashlib.sha256()
    for file in sorted(set(files)):
        content = file.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{file.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


@lru_cache(maxsize=1024)
def imported_names(content: bytes) -> frozenset[str]:
    """Full names of all that a source file imports anywhere: modules, and names in modules.

    Raises ValueError for a relative import, whose full name the file does not tell.
    """
    return frozenset(_imported_names(ast.parse(content)))


def _imported_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module is None or node.level:
                raise ValueError(f"a relative import in line {node.lineno}")
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _file_of(name: str, source: Path) -> Path | None:
    """The file of ours with the module of that name, or with the module that such a name is taken from."""
    module = name.replace(".", "/")
    for place in (module, module.rpartition("/")[0]):
        for file in (source / f"{place}.py", source / place / "__init__.py") if place else ():
            if file.is_file():
                return file
    return None
