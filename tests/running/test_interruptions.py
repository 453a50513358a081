"""Whatever happens to a study, and whenever: the next one has every key once and equals an undisturbed one."""

from __future__ import annotations

import itertools
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from study_server import IN_A_FILE, KINDS, Ended, Moment, StudyServer

from specstudy.records import STAGE_TABLES, TABLES
from specstudy.tables.equality import without_timing
from specstudy.tables.run_directory import read_table, table_path
from specstudy.tables.schema import check_unique

SEED = 20
MEASURED = [name for stage in ("prefill", "decode", "speculate") for name in STAGE_TABLES[stage]]
ANSWERED = [*MEASURED, *STAGE_TABLES["analyze"], "prompt_versions", "errors"]
LAST_BYTES = {".png": b"IEND\xaeB`\x82", ".svg": b"</svg>\n", ".html": b"</html>\n"}

Tables = dict[str, list[dict[str, object]]]


@pytest.fixture(scope="module")
def server() -> Iterator[StudyServer]:
    server = StudyServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def undisturbed(server: StudyServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, Tables]:
    """A study that nothing happens to: how it ended and its tables."""
    output_dir = tmp_path_factory.mktemp("undisturbed")
    ended = server.run(output_dir)
    assert (ended.status, ended.said) == (0, "")
    return ended, tables_of(output_dir)


def tables_of(output_dir: Path) -> Tables:
    """The measured tables of the run made last, timing columns excepted, seen to hold each key once."""
    run_dir = (output_dir / "latest").resolve()
    assert read_table(run_dir, "errors").num_rows == 0
    tables = {name: read_table(run_dir, name) for name in MEASURED}
    for name, rows in tables.items():
        check_unique(name, rows)
    return {name: without_timing(rows).to_pylist() for name, rows in tables.items()}


def seeded_moments(n: int, counted: Counter[str]) -> list[Moment]:
    """Moments of a study, half of them between opening a file and its rename, each kind in turn, at random places."""
    rng = random.Random(SEED)
    elsewhere = [kind for kind in KINDS if kind not in IN_A_FILE]
    kinds = itertools.chain.from_iterable(zip(itertools.cycle(IN_A_FILE), itertools.cycle(elsewhere), strict=False))
    return [(kind, rng.randrange(counted[kind])) for kind in itertools.islice(kinds, n)]


def readable(output_dir: Path) -> None:
    """Every table, figure and page that is there is whole, whatever happened."""
    for run_dir in output_dir.glob("smollm2-*"):
        for name in TABLES:
            if table_path(run_dir, name).exists():
                check_unique(name, read_table(run_dir, name))
        for file in [*run_dir.glob("figures/[!.]*"), *run_dir.glob("*.html")]:
            assert file.read_bytes().endswith(LAST_BYTES[file.suffix]), file


def assert_next_run_is_whole(server: StudyServer, output_dir: Path, expected: Tables) -> None:
    readable(output_dir)
    ended = server.run(output_dir)
    assert (ended.status, ended.said) == (0, "")
    assert tables_of(output_dir) == expected
    assert list(output_dir.rglob("*.tmp")) == []
    assert list(output_dir.rglob("*.rejected")) == []


def assert_survives_kills(
    n: int, server: StudyServer, undisturbed: tuple[Ended, Tables], tmp_path: Path
) -> Counter[str]:
    ended, expected = undisturbed
    moments = seeded_moments(n, ended.moments)
    for i, moment in enumerate(moments):
        output_dir = tmp_path / str(i)
        killed = server.run(output_dir, moment)
        assert (killed.status, killed.said) == (-9, ""), moment
        assert_next_run_is_whole(server, output_dir, expected)
    return Counter(kind for kind, _ in moments)


def test_killed_at_some_moments(server: StudyServer, undisturbed: tuple[Ended, Tables], tmp_path: Path) -> None:
    assert_survives_kills(5, server, undisturbed, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_killed_at_a_hundred_moments(server: StudyServer, undisturbed: tuple[Ended, Tables], tmp_path: Path) -> None:
    kinds = assert_survives_kills(100, server, undisturbed, tmp_path)
    assert sum(kinds[kind] for kind in IN_A_FILE) == 50
    assert all(kinds[kind] >= 10 for kind in KINDS)


def answers_of(output_dir: Path) -> dict[str, object]:
    """Every table of the run made last, columns of a clock and all, and its figure."""
    run_dir = (output_dir / "latest").resolve()
    assert (run_dir / "report.html").is_file()
    figures = {file.name: file.read_bytes() for file in run_dir.glob("figures/*")}
    assert len(figures) == 2
    return {**{name: read_table(run_dir, name).to_pylist() for name in ANSWERED}, **figures}


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_killed_or_out_of_space_while_it_answers(server: StudyServer, tmp_path: Path) -> None:
    """From the same results the next command gives the same answers, to the bit."""
    measured = tmp_path / "measured"
    before = server.run(measured)
    assert before.status == 0

    def with_results(name: str) -> Path:
        shutil.copytree(measured / "store", tmp_path / name / "store")
        return tmp_path / name

    nothing_to_measure = server.run(with_results("nothing to measure")).moments
    whole = with_results("whole")
    ended = server.run(whole, answered=True)
    assert (ended.status, ended.said) == (0, "")
    expected = answers_of(whole)

    rng = random.Random(SEED)
    kills = [(kind, "kill") for kind in ("open", *IN_A_FILE, "renamed")]
    for i, (kind, disaster) in enumerate([*2 * kills, *((kind, "ENOSPC") for kind in IN_A_FILE)]):
        moment = (kind, rng.randrange(nothing_to_measure[kind], ended.moments[kind]))
        output_dir = with_results(str(i))
        struck = server.run(output_dir, moment, disaster, answered=True)
        assert struck.status == {"kill": -9, "ENOSPC": 2}[disaster], (moment, struck.said)
        assert struck.said.count("\n") == (disaster != "kill")
        readable(output_dir)
        again = server.run(output_dir, answered=True)
        assert (again.status, again.said) == (0, "")
        assert answers_of(output_dir) == expected
        assert list(output_dir.rglob("*.tmp")) == []


def test_killed_again_and_again(server: StudyServer, undisturbed: tuple[Ended, Tables], tmp_path: Path) -> None:
    _, expected = undisturbed
    for moment in (("rename", 7), ("write", 150), ("sync", 5)):
        assert server.run(tmp_path, moment).status == -9
    assert_next_run_is_whole(server, tmp_path, expected)


@pytest.mark.parametrize(
    ("moment", "disaster"),
    [
        (("write", 250), "ENOSPC"),
        (("sync", 12), "ENOSPC"),
        (("rename", 6), "EIO"),
        (("make directory", 0), "EROFS"),
        (("open", 0), "EROFS"),
        (("open", 9), "EROFS"),
    ],
)
def test_a_disk_that_refuses_is_one_line_and_harms_nothing(
    moment: Moment, disaster: str, server: StudyServer, undisturbed: tuple[Ended, Tables], tmp_path: Path
) -> None:
    """A full disk, one that fails, and one that may only be read: from some moment on, for the rest of the command."""
    ended = server.run(tmp_path, moment, disaster)
    assert ended.status == 2
    assert ended.said.startswith(f"error: cannot write {tmp_path}")
    assert ended.said.endswith("; free space there or choose another output_dir\n")
    assert ended.said.count("\n") == 1
    assert list(tmp_path.rglob("*.tmp")) == []
    assert_next_run_is_whole(server, tmp_path, undisturbed[1])
