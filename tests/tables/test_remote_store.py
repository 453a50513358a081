"""The store on file systems that pyarrow opens by URI: a local S3 server, and a directory as file://."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs
from table_examples import stage_examples

from specstudy.errors import UserError
from specstudy.records import STAGE_TABLES
from specstudy.tables.schema import to_records
from specstudy.tables.store import Store, result_key

PARTS = {"prompt": "Who?", "seed": 0}
KEY = result_key(PARTS)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The URI of an empty bucket on a server of this machine."""
    pytest.importorskip("moto")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        options = f"scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"
        for _ in range(300):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        files = fs.S3FileSystem(
            access_key="test",
            secret_key="test",
            scheme="http",
            endpoint_override=f"127.0.0.1:{port}",
            region="us-east-1",
            allow_bucket_creation=True,
        )
        files.create_dir("results")
        yield f"s3://test:test@results/specstudy?{options}"
        server.kill()


@pytest.fixture(params=["s3", "file"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.getfixturevalue("s3")) if request.param == "s3" else f"file://{tmp_path}/store"


def files_of(uri: str) -> list[str]:
    files, root = fs.FileSystem.from_uri(uri)
    found = files.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
    return sorted(info.path.removeprefix(root) for info in found if info.type == fs.FileType.File)


def overwrite(uri: str, content: bytes) -> None:
    files, root = fs.FileSystem.from_uri(uri)
    files.create_dir(f"{root}/decode/{KEY[:2]}")
    with files.open_output_stream(f"{root}/decode/{KEY[:2]}/{KEY}.parquet") as stream:
        stream.write(content)


def test_a_result_is_one_whole_file_and_comes_back(uri: str) -> None:
    store = Store(uri)
    for stage in ("prefill", "decode"):
        assert not store.exists(stage, KEY)
        assert store.get(stage, KEY) is None
        store.put(stage, KEY, PARTS, stage_examples(stage))
        store.put(stage, KEY, PARTS, stage_examples(stage))
        result = Store(uri).get(stage, KEY)
        assert result is not None
        assert store.exists(stage, KEY)
        assert {name: to_records(name, result[name]) for name in STAGE_TABLES[stage]} == stage_examples(stage)
    assert files_of(uri) == [f"/{stage}/{KEY[:2]}/{KEY}.parquet" for stage in ("decode", "prefill")]


@pytest.mark.parametrize("content", [b"", b"not Parquet"])
def test_a_foreign_file_is_moved_aside(uri: str, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(uri)
    overwrite(uri, content)
    assert store.get("decode", KEY) is None
    assert "is damaged or foreign" in caplog.text
    assert "test:test" not in caplog.text
    assert not store.exists("decode", KEY)
    store.put("decode", KEY, PARTS, stage_examples("decode"))
    assert store.has("decode", KEY)


@pytest.mark.parametrize("uri", ["nosuch://here/there", "s3://", "file://relative"])
def test_a_uri_that_cannot_be_opened_is_one_line(uri: str) -> None:
    with pytest.raises(UserError, match=r"^execution.store=[^\n]* cannot be opened: [^\n]+$"):
        Store(uri)


def test_a_server_that_does_not_answer_is_one_line() -> None:
    store = Store("s3://key:secret@bucket/place?scheme=http&endpoint_override=127.0.0.1:1&region=us-east-1")
    with pytest.raises(UserError, match=r"^cannot read s3://bucket/place/decode/[^\n]+$") as raised:
        store.get("decode", KEY)
    assert "secret" not in str(raised.value)
