from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from specstudy.errors import UserError
from specstudy.tables import files
from specstudy.tables.files import atomic_file, remove_abandoned, temporary_path, write_atomically


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def refuse_with(code: int) -> Callable[..., None]:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return refuse


def number_of_an_ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_a_file_replaces_the_earlier_one_and_leaves_nothing_else(tmp_path: Path) -> None:
    write_atomically(tmp_path / "new" / "file", b"one")
    write_atomically(tmp_path / "new" / "file", b"two")
    assert (tmp_path / "new" / "file").read_bytes() == b"two"
    assert names_in(tmp_path / "new") == ["file"]


def test_content_is_synced_before_the_rename_and_the_directory_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noting_fsync(descriptor: int) -> None:
        calls.append("sync directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
        fsync(descriptor)

    def noting_replace(source: Path, target: Path) -> None:
        calls.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "replace", noting_replace)
    write_atomically(tmp_path / "file", b"content")
    assert calls == ["sync file", "rename", "sync directory"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_refused_write_is_one_line_and_leaves_the_earlier_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    write_atomically(tmp_path / "file", b"earlier")
    monkeypatch.setattr(os, call, refuse_with(code))
    with pytest.raises(UserError) as raised:
        write_atomically(tmp_path / "file", b"later")
    message = str(raised.value)
    assert message.startswith(f"cannot write {tmp_path / 'file'}: {os.strerror(code)}; ")
    assert "\n" not in message
    assert (tmp_path / "file").read_bytes() == b"earlier"
    assert names_in(tmp_path) == ["file"]


def test_a_disk_that_fills_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    # A limit on file size is the full disk that a test can have: the system itself cuts the write short.
    code = """
import pathlib, resource, sys
from specstudy.errors import UserError
from specstudy.tables.files import write_atomically
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    write_atomically(pathlib.Path(sys.argv[1]), bytes(100_000))
except UserError as fault:
    print(fault)
"""
    pytest.importorskip("resource")
    path = tmp_path / "file"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"cannot write {path}: File too large")
    assert names_in(tmp_path) == []


def test_a_place_below_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "outputs").write_text("a file")
    with pytest.raises(UserError, match=r"cannot write .*Not a directory; remove .*/outputs or choose another"):
        write_atomically(tmp_path / "outputs" / "store" / "file", b"content")


def test_a_place_below_a_link_to_nowhere_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "outputs").symlink_to(tmp_path / "an unmounted disk")
    with pytest.raises(UserError, match=r"cannot write .*File exists; remove .*/outputs or choose another"):
        write_atomically(tmp_path / "outputs" / "store" / "file", b"content")


def test_a_directory_in_the_place_of_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*Is a directory; remove .*/file or choose another"):
        write_atomically(tmp_path / "file", b"content")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_link_to_nowhere_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").symlink_to(tmp_path / "nowhere")
    write_atomically(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="everything is writable to root")
def test_a_read_only_directory_is_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match=r"cannot write .*Permission denied"):
        write_atomically(tmp_path / "file", b"content")
    tmp_path.chmod(0o700)


def fail_inside(path: Path, fault: BaseException) -> None:
    with atomic_file(path) as file:
        file.write(b"half")
        raise fault


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), ValueError("wrong")])
def test_whatever_ends_the_block_leaves_nothing_and_passes_on(tmp_path: Path, fault: BaseException) -> None:
    with pytest.raises(type(fault)):
        fail_inside(tmp_path / "file", fault)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_leftovers_of_a_killed_writer_are_removed(tmp_path: Path, call: str) -> None:
    code = f"""
import os, pathlib, signal, sys
from specstudy.tables.files import write_atomically
os.{call} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
write_atomically(pathlib.Path(sys.argv[1]), b"half")
"""
    path = tmp_path / "store" / "ab" / "file"
    killed = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert killed.returncode != 0
    assert not path.exists()
    assert len(names_in(path.parent)) == 1
    remove_abandoned(tmp_path)
    assert names_in(path.parent) == []


def test_only_leftovers_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    being_written = temporary_path(tmp_path / "file")
    clock_set_forward = temporary_path(tmp_path / "file")
    ended = number_of_an_ended_process()
    monkeypatch.setattr(os, "getpid", lambda: ended)
    killed = temporary_path(tmp_path / "file")
    monkeypatch.setattr(files, "_HOST", "another-machine")
    elsewhere, elsewhere_old = temporary_path(tmp_path / "file"), temporary_path(tmp_path / "file")
    monkeypatch.undo()
    not_ours = [tmp_path / ".notes.tmp", tmp_path / f".file.{socket.gethostname()}.tmp", tmp_path / "file"]
    for path in [being_written, clock_set_forward, killed, elsewhere, elsewhere_old, *not_ours]:
        path.write_bytes(b"")
    for path in [clock_set_forward, elsewhere_old, *not_ours]:
        os.utime(path, (time.time() - 4000, time.time() - 4000))
    remove_abandoned(tmp_path)
    assert set(tmp_path.iterdir()) == {being_written, clock_set_forward, elsewhere, *not_ours}


def test_temporary_names_of_one_moment_differ(tmp_path: Path) -> None:
    assert len({temporary_path(tmp_path / "file") for _ in range(1000)}) == 1000
