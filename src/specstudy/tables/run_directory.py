"""Run directories: named after the configuration, held by one command at a time, and filled with whole tables.

`<output_dir>/<models>-<prompts>-<8 hex digits>/` holds manifest.json, config.yaml, tables/, figures/ and report.html;
`<output_dir>/latest` points to the run started last.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from filelock import FileLock, Timeout

from specstudy.errors import UserError
from specstudy.records import KEY_COLUMNS, STAGE_TABLES, TABLES
from specstudy.tables.files import atomic_file, cannot_write, remove_abandoned, temporary_path, write_atomically
from specstudy.tables.schema import (
    InvalidRecordError,
    check_unique,
    schema_of,
    sort_by_key,
    validate,
    with_declared_schema,
)
from specstudy.tables.store import canonical_json

log = logging.getLogger(__name__)

_RESULTS_PER_GROUP = 512


def run_path(output_dir: Path, models: str, prompts: str, config: Mapping[str, object]) -> Path:
    """Where the run of a configuration lies. `config` is plain data and holds only what changes results."""
    digest = hashlib.sha256(canonical_json(dict(config)).encode()).hexdigest()
    return output_dir / f"{_safe(models)}-{_safe(prompts)}-{digest[:8]}"


@contextmanager
def run_directory(output_dir: Path, *, models: str, prompts: str, config: Mapping[str, object]) -> Iterator[Path]:
    """The run directory of a configuration, made if it is not there, and this command's alone until the block ends.

    A second command of the same configuration waits here. `config` is kept as config.yaml, and `latest` points here.
    Raises UserError where the directory cannot be made or written.
    """
    path = run_path(output_dir, models, prompts, config)
    with locked(path):
        remove_abandoned(path)
        write_atomically(path / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False).encode())
        point_latest(path)
        yield path


@contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """Holds a run directory alone; where another process holds it, says so in one line and waits.

    The lock belongs to the process and ends with it, so a killed run leaves nothing to clear.
    """
    lock = FileLock(run_dir / ".lock")
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            log.warning("%s is in use by another command; waiting for it to end", run_dir)
            lock.acquire()
    except OSError as fault:
        raise cannot_write(run_dir / ".lock", fault) from fault
    try:
        yield
    finally:
        lock.release()


def point_latest(run_dir: Path) -> None:
    """Lets `latest`, beside the run directory, point to it: a symbolic link, or a text file where links are refused."""
    latest = run_dir.parent / "latest"
    temporary = temporary_path(latest)
    try:
        temporary.symlink_to(run_dir.name, target_is_directory=True)
        os.replace(temporary, latest)
    except OSError:  # some network drives
        temporary.unlink(missing_ok=True)
        write_atomically(latest, f"{run_dir.name}\n".encode())


def resolve_run(path: Path) -> Path:
    """The run directory that a path means: itself, or what `latest` points to. Raises UserError if it is none."""
    if path.is_file():
        try:
            path = path.parent / path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as fault:
            raise UserError(f"{path} is a file, not a run directory") from fault
    if not (path / "config.yaml").is_file():
        raise UserError(f"no run at {path}; `make runs` lists the runs there are")
    return path.resolve()


def read_config(run_dir: Path) -> dict[str, object]:
    """The configuration that a run directory was made for. Raises UserError if its config.yaml is not readable."""
    path = run_dir / "config.yaml"
    try:
        config = yaml.safe_load(path.read_bytes())
    except (OSError, yaml.YAMLError) as fault:
        raise UserError(f"cannot read {path}: {str(fault).splitlines()[0]}") from fault
    if not isinstance(config, dict):
        raise UserError(f"{path} does not hold a configuration")
    return config


def publish_table(run_dir: Path, name: str, rows: pa.Table) -> None:
    """Writes a final table whole or not at all, as tables/<name>.parquet (zstd), rows in the given order.

    Raises InvalidRecordError for what the table's schema refuses and for keys that occur twice, UserError where it
    cannot be written; the earlier table then stays.
    """
    _check(name, rows)
    with atomic_file(table_path(run_dir, name)) as file:
        pq.write_table(with_declared_schema(name, rows), file, compression="zstd", write_page_checksum=True)


def consolidate(run_dir: Path, stage: str, results: Iterable[Mapping[str, pa.Table]]) -> None:
    """Publishes the tables of a stage from the results of its units of work, sorted by key.

    Results come in the order of their keys; only within a group of 512 may they come in any. So one group at a time is
    in memory, however many there are. Raises InvalidRecordError, before anything is published, if a key occurs twice
    or groups are out of order.
    """
    with ExitStack() as opened:
        writers = [opened.enter_context(_table_writer(run_dir, name)) for name in STAGE_TABLES[stage]]
        remaining = iter(results)
        while group := list(islice(remaining, _RESULTS_PER_GROUP)):
            for writer in writers:
                writer.write(pa.concat_tables([result[writer.name] for result in group]))


def table_path(run_dir: Path, name: str) -> Path:
    """The file of a final table."""
    return run_dir / "tables" / f"{name}.parquet"


def read_table(run_dir: Path, name: str) -> pa.Table:
    """A final table under its declared schema. Raises UserError if it is unknown, missing, damaged or outdated."""
    if name not in TABLES:
        raise UserError(f"no table is called {name!r}; the tables are {', '.join(TABLES)}")
    path = table_path(run_dir, name)
    try:
        return with_declared_schema(name, pq.read_table(path, page_checksum_verification=True))
    except FileNotFoundError:
        stage = next((stage for stage, tables in STAGE_TABLES.items() if name in tables), "study")
        command = "study experiment=kv_retention" if stage == "retention" else stage
        raise UserError(f"{run_dir} has no table {name}; `make {command}` writes it") from None
    except InvalidRecordError as fault:
        raise UserError(f"{path} was written by another version: {fault}; run the study again") from fault
    except (pa.ArrowException, OSError) as fault:
        raise UserError(f"cannot read {path}: {str(fault).splitlines()[0]}; run the study again") from fault


def _check(name: str, rows: pa.Table) -> None:
    validate(name, rows)
    check_unique(name, rows)


@dataclass
class _TableWriter:
    """Appends groups of rows to a table's file."""

    name: str
    file: pq.ParquetWriter
    last_key: tuple[object, ...] | None = None

    def write(self, rows: pa.Table) -> None:
        rows = sort_by_key(self.name, rows.combine_chunks())
        _check(self.name, rows)
        if not rows.num_rows:
            return
        first_key = self._key(rows.slice(0, 1))
        if self.last_key is not None and first_key <= self.last_key:
            raise InvalidRecordError(f"table {self.name}: keys occur more than once or out of order, at {first_key}")
        self.last_key = self._key(rows.slice(rows.num_rows - 1, 1))
        self.file.write_table(with_declared_schema(self.name, rows))

    def _key(self, row: pa.Table) -> tuple[object, ...]:
        """A row's key, comparable as it is sorted: null after everything else."""
        values = row.select(list(KEY_COLUMNS[self.name])).to_pylist()[0].values()
        return tuple((value is None, value) for value in values)


@contextmanager
def _table_writer(run_dir: Path, name: str) -> Iterator[_TableWriter]:
    with (
        atomic_file(table_path(run_dir, name)) as file,
        pq.ParquetWriter(file, schema_of(name), compression="zstd", write_page_checksum=True) as writer,
    ):
        yield _TableWriter(name, writer)


def _safe(name: str) -> str:
    """A name that every file system takes; the digits after it tell apart what this makes alike."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._-")[:60] or "unnamed"
