"""A real Ray cluster of this machine, two workers, tiny models: the same tables as without it, whoever dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tiny_mixtures import families, mixture_pair, tiny_vocabulary
from tiny_study import PROMPTS, configuration, tiny_pair

from specstudy import open_run
from specstudy.config import StudyConfig
from specstudy.errors import UserError
from specstudy.models.load import Pair
from specstudy.running import ray_pool, workflow
from specstudy.running.stage import Records, Stage, Unit
from specstudy.running.stages.decode import DECODE
from specstudy.running.stages.prefill import PREFILL
from specstudy.running.stages.routing import ROUTING
from specstudy.running.stages.speculate import SPECULATE
from specstudy.tables.equality import first_difference
from specstudy.tables.run_directory import read_table

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
STAGES = (PREFILL, DECODE, SPECULATE)


def load_tiny_pair(config: StudyConfig) -> Pair:
    import torch

    torch.set_num_threads(1)
    return tiny_pair()


@pytest.fixture(scope="module")
def _cluster() -> Iterator[None]:
    here = Path(__file__).parent  # workers import what is made here; what they run is installed
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", os.pathsep.join(map(str, (here, here.parent))))
        ray_pool.connect(ray, configured(Path("/nowhere"), write=False))
        yield
        ray.shutdown()


@pytest.fixture(autouse=True)
def _tiny_models(monkeypatch: pytest.MonkeyPatch, _cluster: None) -> None:
    monkeypatch.setattr(workflow, "find_models", lambda config: partial(load_tiny_pair, config))


def configured(output_dir: Path, *words: str, write: bool = True) -> StudyConfig:
    given = ["execution.threads=1", "execution.workers=2", *words]
    if not write:
        from specstudy.overrides import study_config

        return study_config(["execution=ray", *given])
    return configuration(output_dir, PROMPTS, *given)


def dying(stage: Stage, prompt_id: str, corpses: Path, lives: int) -> Stage:
    """A stage whose worker is killed in the middle of a prompt, the first `lives` times."""

    def measure(pair: Pair, config: StudyConfig, unit: Unit) -> Records:
        if unit.prompt.prompt_id == prompt_id and len(list(corpses.iterdir())) < lives:
            (corpses / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return stage.measure(pair, config, unit)

    return replace(stage, measure=measure)


def noting_its_process(stage: Stage, callers: Path) -> Stage:
    def measure(pair: Pair, config: StudyConfig, unit: Unit) -> Records:
        (callers / str(os.getpid())).touch()
        return stage.measure(pair, config, unit)

    return replace(stage, measure=measure)


def failing(stage: Stage, prompt_id: str, error: Exception) -> Stage:
    def measure(pair: Pair, config: StudyConfig, unit: Unit) -> Records:
        if unit.prompt.prompt_id == prompt_id:
            raise error
        return stage.measure(pair, config, unit)

    return replace(stage, measure=measure)


def latest(output_dir: Path) -> Path:
    return (output_dir / "latest").resolve()


def test_tables_equal_those_of_one_process_though_a_worker_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local, pool, corpses = tmp_path / "local", tmp_path / "pool", tmp_path / "corpses"
    corpses.mkdir()
    assert workflow.run(configured(local), STAGES) == 0
    stages = [PREFILL, dying(DECODE, "prompt-2", corpses, 1), SPECULATE]
    assert workflow.run(configured(pool, "execution=ray"), stages) == 0
    assert len(list(corpses.iterdir())) == 1
    assert capsys.readouterr().err == "decode of prompt-2: its worker died; another one tries\n"
    assert first_difference(latest(local), latest(pool)) is None
    assert latest(local).name.rpartition("-")[0] == latest(pool).name.rpartition("-")[0]
    counts = open_run(latest(pool)).manifest["stages"]
    assert {name: (c["n_done"], c["n_reused"]) for name, c in counts.items()} == {
        "prefill": (5, 0),
        "decode": (5, 0),
        "speculate": (5, 0),
    }


def test_the_number_of_workers_changes_nothing(tmp_path: Path) -> None:
    ways = {"local": ["execution=local"], "one": ["execution=ray"], "two": ["execution=ray"]}
    measured_by: dict[str, int] = {}
    for name, words in ways.items():
        callers = tmp_path / f"{name} workers"
        callers.mkdir()
        stages = [noting_its_process(stage, callers) for stage in STAGES]
        n_workers = {"local": 1, "one": 1, "two": 2}[name]
        assert workflow.run(configured(tmp_path / name, *words, f"execution.workers={n_workers}"), stages) == 0
        measured_by[name] = len(list(callers.iterdir()))
    assert measured_by == {"local": 1, "one": 1, "two": 2}
    for name in ("one", "two"):
        assert first_difference(latest(tmp_path / "local"), latest(tmp_path / name)) is None


def load_tiny_mixture(config: StudyConfig) -> Pair:
    import torch

    torch.set_num_threads(1)
    return mixture_pair(families(tiny_vocabulary())["mixtral"])


def test_routing_is_the_same_whoever_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "find_models", lambda config: partial(load_tiny_mixture, config))
    local, pool = tmp_path / "local", tmp_path / "pool"
    assert workflow.run(configured(local), [DECODE, ROUTING]) == 0
    assert workflow.run(configured(pool, "execution=ray"), [DECODE, ROUTING]) == 0
    assert read_table(latest(pool), "routing_tokens").num_rows > 100
    assert first_difference(latest(local), latest(pool)) is None


def test_what_kills_every_worker_is_an_error_row_and_the_rest_goes_on(tmp_path: Path) -> None:
    output_dir, corpses = tmp_path / "pool", tmp_path / "corpses"
    corpses.mkdir()
    config = configured(output_dir, "execution=ray")
    assert workflow.run(config, [dying(DECODE, "prompt-2", corpses, 99)]) == 1
    assert len(list(corpses.iterdir())) == ray_pool.ATTEMPTS
    rows = read_table(latest(output_dir), "errors").to_pylist()
    assert [(row["prompt_id"], row["kind"]) for row in rows] == [("prompt-2", "WorkerDied")]
    assert read_table(latest(output_dir), "decode_runs").num_rows == 4
    assert workflow.run(config, [DECODE]) == 0
    assert open_run(latest(output_dir)).manifest["stages"]["decode"]["n_reused"] == 4


def test_a_failing_prompt_is_an_error_row_and_a_bug_is_raised(tmp_path: Path) -> None:
    config = configured(tmp_path, "execution=ray")
    assert workflow.run(config, [failing(DECODE, "prompt-1", FloatingPointError("NaN logits"))]) == 1
    assert read_table(latest(tmp_path), "errors").to_pylist() == [
        {"stage": "decode", "prompt_id": "prompt-1", "kind": "FloatingPointError", "message": "NaN logits"}
    ]
    with pytest.raises(KeyError, match="a bug"):
        workflow.run(config, [failing(PREFILL, "prompt-1", KeyError("a bug"))])


def test_a_worker_with_other_models_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = os.getpid()

    def load(config: StudyConfig) -> Pair:
        pair = load_tiny_pair(config)
        return pair if os.getpid() == here else replace(pair, draft=replace(pair.draft, fingerprint="other"))

    monkeypatch.setattr(workflow, "find_models", lambda config: partial(load, config))
    with pytest.raises(UserError, match="would measure decode with another draft"):
        workflow.run(configured(tmp_path, "execution=ray"), [DECODE])


def test_no_cluster_at_the_address_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**arguments: Any) -> None:
        raise ConnectionError("nobody\nthere")

    monkeypatch.setattr(ray, "init", refuse)
    config = configured(tmp_path, "execution=ray", "execution.address=nowhere:1")
    with pytest.raises(UserError, match=r"execution.address=nowhere:1: no Ray cluster there \(nobody there\)"):
        ray_pool.connect(ray, config)
