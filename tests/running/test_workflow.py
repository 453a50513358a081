"""The wiring of stages, store and run directories, on tiny random models."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import tiny
from rotary_models import longrope_config
from tiny_study import CONTEXT_LENGTH, NEW_TOKENS, PROMPTS, REFUSED_WORD, configuration, tiny_pair

from specstudy import open_run
from specstudy.config import PROJECT_ROOT, StudyConfig
from specstudy.errors import UserError
from specstudy.models.load import Pair
from specstudy.prompts import Prompt, render
from specstudy.records import STAGE_TABLES
from specstudy.running import studies, workflow
from specstudy.running.answer import answer
from specstudy.running.stage import Stage, Unit
from specstudy.running.stages.decode import DECODE
from specstudy.running.stages.prefill import PREFILL
from specstudy.running.stages.speculate import SPECULATE
from specstudy.tables.equality import without_timing
from specstudy.tables.run_directory import read_table

pytestmark = pytest.mark.usefixtures("tiny_models")

# The engine's check of itself takes a fifth of a run and is tested with models that fail it.
UNCHECKED = replace(SPECULATE, check=None)
STAGES = (PREFILL, DECODE, UNCHECKED)


class Watched:
    """Stages that note what they measure, and can be told what happens to a unit instead."""

    def __init__(self, instead: Callable[[str, Unit], None] = lambda stage, unit: None) -> None:
        self.measured: list[tuple[str, str]] = []
        self._instead = instead
        self.stages: list[Stage] = [replace(stage, measure=self._measure(stage)) for stage in STAGES]

    def _measure(self, stage: Stage) -> Callable[[Pair, StudyConfig, Unit], Any]:
        def measure(pair: Pair, config: StudyConfig, unit: Unit) -> Any:
            self._instead(stage.name, unit)
            self.measured.append((stage.name, unit.prompt.prompt_id))
            return stage.measure(pair, config, unit)

        return measure


def failing(prompt_id: str, error: Exception, stage: str = "decode") -> Callable[[str, Unit], None]:
    def instead(name: str, unit: Unit) -> None:
        if (name, unit.prompt.prompt_id) == (stage, prompt_id):
            raise error

    return instead


def stage_tables(output_dir: Path) -> dict[str, pa.Table]:
    """The tables of all stages in the run made last."""
    run_dir = (output_dir / "latest").resolve()
    return {name: read_table(run_dir, name) for stage in STAGES for name in STAGE_TABLES[stage.name]}


def comparable(output_dir: Path) -> dict[str, list[dict[str, Any]]]:
    return {name: without_timing(rows).to_pylist() for name, rows in stage_tables(output_dir).items()}


def errors(output_dir: Path) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = read_table((output_dir / "latest").resolve(), "errors").to_pylist()
    return rows


def test_a_second_run_measures_nothing_and_gives_the_same_tables(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    assert workflow.run(config, STAGES) == 0
    first = stage_tables(tmp_path)
    watched = Watched()
    assert workflow.run(config, watched.stages) == 0
    assert watched.measured == []
    assert all(rows.equals(first[name]) for name, rows in stage_tables(tmp_path).items())
    counts = open_run(tmp_path / "latest").manifest["stages"]["decode"]
    assert (counts["n_done"], counts["n_reused"], counts["n_failed"]) == (5, 5, 0)


def test_another_gamma_measures_only_speculation(tmp_path: Path) -> None:
    workflow.run(configuration(tmp_path), STAGES)
    watched = Watched()
    workflow.run(configuration(tmp_path, PROMPTS, "spec.gamma=[2,3]"), watched.stages)
    assert watched.measured == [("speculate", prompt_id) for prompt_id in PROMPTS]
    assert set(stage_tables(tmp_path)["spec_runs"]["gamma"].to_pylist()) == {2, 3}


def test_a_setting_measured_alone_or_among_others_is_one_result(tmp_path: Path) -> None:
    workflow.run(configuration(tmp_path, PROMPTS, "spec.stop=entropy", "spec.stop_threshold=0.4"), STAGES)
    alone = without_timing(stage_tables(tmp_path)["spec_tokens"])
    rules = ["spec.stop=[none,entropy]", "spec.stop_threshold=[null,0.4]"]
    watched = Watched()
    # What only other settings use (the layers of early_exit, the threshold of none) is not part of a result's key.
    workflow.run(configuration(tmp_path, PROMPTS, *rules, "spec.exit_layers=1"), watched.stages)
    assert watched.measured == [("speculate", prompt_id) for prompt_id in PROMPTS]
    among = stage_tables(tmp_path)["spec_tokens"]
    assert among.filter(pc.equal(among["stop"], "entropy")).select(alone.column_names).equals(alone)
    again = Watched()
    workflow.run(configuration(tmp_path, PROMPTS, "spec.stop=none", "spec.stop_threshold=0.1"), again.stages)
    assert again.measured == []


@pytest.mark.parametrize(
    "word", ["spec.stop=entropy", "spec.top_p=0.5", "spec.proposer=early_exit", "spec.baseline=false"]
)
def test_another_setting_is_another_result(word: str, tmp_path: Path) -> None:
    one = {"prompt-1": PROMPTS["prompt-1"]}
    workflow.run(configuration(tmp_path, one), [UNCHECKED])
    watched = Watched()
    workflow.run(configuration(tmp_path, one, word), watched.stages[2:])
    assert watched.measured == [("speculate", "prompt-1")]


def test_settings_are_compared_on_the_same_random_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import specstudy.measure.speculation_records as measuring

    drawn: dict[tuple[str, int], list[list[float]]] = {}
    measure = measuring.measure_speculation

    def noting(pair: Pair, rendered: Any, settings: Any, repetition: int, rng: Any, baseline_rng: Any) -> Any:
        first = [copy.deepcopy(generator).random() for generator in (rng, baseline_rng)]
        drawn.setdefault((rendered.prompt.prompt_id, settings.gamma), []).append(first)
        return measure(pair, rendered, settings, repetition, rng, baseline_rng)

    monkeypatch.setattr(measuring, "measure_speculation", noting)
    words = ["spec.gamma=[2,3]", "spec.stop=[none,entropy]", "spec.temperature=[0.3,1.0]"]
    two = {name: PROMPTS[name] for name in ("prompt-1", "prompt-2")}
    workflow.run(configuration(tmp_path, two, *words), [UNCHECKED])
    assert [len(numbers) for numbers in drawn.values()] == [4] * 4
    assert all(numbers == numbers[:1] * 4 for numbers in drawn.values())
    assert len({str(numbers[0][0]) for numbers in drawn.values()}) == 4


def test_without_a_baseline_what_is_relative_to_it_is_null(tmp_path: Path) -> None:
    workflow.run(configuration(tmp_path, PROMPTS, "spec.baseline=false"), [UNCHECKED])
    runs = read_table((tmp_path / "latest").resolve(), "spec_runs").to_pylist()
    relative = ["speedup", "baseline_tokens_per_s", "target_efficiency", "cost_ratio_time"]
    relative += ["theoretical_speedup_time", "theoretical_speedup_full"]
    assert {name for row in runs for name in relative if row[name] is not None} == set()
    assert all("spec.baseline=false" in row["null_reason"] for row in runs)
    assert all(row["theoretical_speedup_flops"] and row["tokens_per_s"] for row in runs)


def test_prompts_share_results_across_sets(tmp_path: Path) -> None:
    workflow.run(configuration(tmp_path), STAGES)
    watched = Watched()
    workflow.run(configuration(tmp_path, {**PROMPTS, "prompt-9": "Nine?"}), watched.stages)
    assert {prompt_id for _, prompt_id in watched.measured} == {"prompt-9"}


def test_order_interruptions_and_the_other_prompts_leave_no_trace(tmp_path: Path) -> None:
    workflow.run(configuration(tmp_path / "straight"), STAGES)
    expected = comparable(tmp_path / "straight")

    backwards = dict(reversed(PROMPTS.items()))
    workflow.run(configuration(tmp_path / "backwards", backwards), STAGES)
    assert comparable(tmp_path / "backwards") == expected

    started: list[str] = []

    def killed_at_every_fourth(stage: str, unit: Unit) -> None:
        started.append(stage)
        if len(started) % 4 == 0:
            raise KeyboardInterrupt

    n_killed = 0
    config, watched = configuration(tmp_path / "killed"), Watched(killed_at_every_fourth)
    for _ in range(9):
        try:
            assert workflow.run(config, watched.stages) == 0
            break
        except KeyboardInterrupt:
            n_killed += 1
    assert n_killed == 4
    assert len(set(watched.measured)) == len(watched.measured) == 15
    assert comparable(tmp_path / "killed") == expected

    workflow.run(configuration(tmp_path / "alone", {"prompt-3": PROMPTS["prompt-3"]}), STAGES)
    for name, rows in comparable(tmp_path / "alone").items():
        assert rows == [row for row in expected[name] if row["prompt_id"] == "prompt-3"]


@pytest.mark.parametrize(
    "error",
    [
        FloatingPointError("NaN logits"),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
        ValueError("a text that\nnothing can take"),
    ],
    ids=lambda error: str(error)[:12],
)
def test_a_failing_prompt_leaves_a_row_and_only_it_is_tried_again(
    error: Exception, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path)
    assert workflow.run(config, Watched(failing("prompt-1", error)).stages) == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith("1 of the measurements failed, first decode of prompt-1: ")
    message = " ".join(str(error).split()) or "MemoryError"
    kind = type(error).__name__
    assert errors(tmp_path) == [{"stage": "decode", "prompt_id": "prompt-1", "kind": kind, "message": message}]
    tables = stage_tables(tmp_path)
    assert set(tables["decode_runs"]["prompt_id"].to_pylist()) == PROMPTS.keys() - {"prompt-1"}
    assert set(tables["spec_runs"]["prompt_id"].to_pylist()) == PROMPTS.keys()

    again = Watched()
    assert workflow.run(config, again.stages) == 0
    assert again.measured == [("decode", "prompt-1")]
    assert errors(tmp_path) == []
    assert set(stage_tables(tmp_path)["decode_runs"]["prompt_id"].to_pylist()) == PROMPTS.keys()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "error", [KeyError("a bug"), RuntimeError("shapes do not match"), AssertionError("off by one")]
)
def test_a_bug_is_not_taken_for_a_failing_prompt(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(type(error)):
        workflow.run(configuration(tmp_path), Watched(failing("prompt-1", error)).stages)
    assert open_run(tmp_path / "latest").manifest["time"]["end"] is None


def test_prompts_that_cannot_be_shown_to_the_model_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = {**PROMPTS, "long": "a" * 300, "refused": f"the {REFUSED_WORD} word"}
    watched = Watched()
    assert workflow.run(configuration(tmp_path, prompts), watched.stages) == 1
    assert {prompt_id for _, prompt_id in watched.measured} == PROMPTS.keys()
    rows = {row["prompt_id"]: row for row in errors(tmp_path)}
    assert {row["stage"] for row in rows.values()} == {"render"}
    assert rows["long"]["kind"] == "PromptTooLongError"
    assert rows["long"]["message"].endswith(" prompt tokens and 6 new ones do not fit into the models' context of 256")
    assert "not that word" in rows["refused"]["message"]
    assert "2 of the measurements failed" in capsys.readouterr().err


def test_a_text_that_would_pass_a_switch_of_frequencies_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tiny_pair()
    switch, n_rows = 60, made.verifier.vocabulary
    draft = replace(tiny.language_model(longrope_config(switch, vocab_size=n_rows), 1), vocabulary=n_rows)
    monkeypatch.setattr(workflow, "find_models", lambda config: lambda: replace(made, draft=draft))
    n_around = len(render(Prompt("p", "own", ""), made.tokenizer).positions)
    fits, crosses, beyond = ("a" * (n - n_around - 6) for n in (switch, switch + 1, 2 * switch))
    watched = Watched()
    config = configuration(tmp_path, {"fits": fits, "crosses": crosses, "beyond": beyond})
    assert workflow.run(config, watched.stages) == 1
    assert {prompt_id for _, prompt_id in watched.measured} == {"fits"}
    rows = {row["prompt_id"]: row for row in errors(tmp_path)}
    assert rows.keys() == {"crosses", "beyond"}
    assert rows["crosses"]["message"] == (
        "55 prompt tokens and 6 new ones do not fit into the models' context of 60 (beyond it rotary frequencies "
        "depend on the length)"
    )


def test_a_prompt_that_just_fits_is_measured(tmp_path: Path, pair: Pair) -> None:
    template = render(Prompt("empty", "own", ""), pair.tokenizer)
    longest = CONTEXT_LENGTH - NEW_TOKENS - len(template.positions)
    prompts = {"fits": "a" * longest, "too long": "a" * (longest + 1)}
    assert workflow.run(configuration(tmp_path, prompts), STAGES) == 1
    assert stage_tables(tmp_path)["spec_runs"]["prompt_id"].to_pylist() == ["fits"]
    assert [row["prompt_id"] for row in errors(tmp_path)] == ["too long"]


def test_errors_of_stages_that_did_not_run_now_stay(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    broken = Watched(failing("prompt-1", ValueError("no")))
    assert workflow.run(config, broken.stages) == 1
    assert workflow.run(config, [PREFILL]) == 0
    assert [row["stage"] for row in errors(tmp_path)] == ["decode"]
    assert workflow.run(config, [DECODE]) == 0
    assert errors(tmp_path) == []


def test_where_every_prompt_fails_there_are_empty_tables_and_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, {"long": "a" * 300})
    assert workflow.run(config, STAGES, after=answer) == 1
    assert all(rows.num_rows == 0 for rows in stage_tables(tmp_path).values())
    assert (tmp_path / "latest" / "report.html").is_file()
    assert "not run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changed", "measured_again"),
    [
        ("src/specstudy/measure/decode.py", {"decode", "speculate"}),
        ("src/specstudy/running/stages/decode.py", {"decode"}),
    ],
)
def test_changed_code_is_noticed_and_what_is_stale_is_said(
    changed: str,
    measured_again: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = configuration(tmp_path)
    workflow.run(config, STAGES)
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda file: read_bytes(file) + b"#" * (file == PROJECT_ROOT / changed))
    watched = Watched()
    workflow.run(config, watched.stages)
    assert watched.measured == [
        (stage.name, name) for stage in STAGES if stage.name in measured_again for name in PROMPTS
    ]
    again = [
        f"{stage.name}: 5 results of this run are measured again, because these changed since: code"
        for stage in STAGES
        if stage.name in measured_again
    ]
    assert capsys.readouterr().err.splitlines() == again
    workflow.run(config, STAGES)
    assert capsys.readouterr().err == ""


def test_the_clock_is_no_part_of_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configuration(tmp_path)
    for seconds, measured in ((2e9, 15), (0.0, 0), (4e9, 0)):
        monkeypatch.setattr(time, "time", lambda seconds=seconds: seconds)
        watched = Watched()
        assert workflow.run(config, watched.stages) == 0
        assert len(watched.measured) == measured


@pytest.mark.parametrize("role", ["verifier", "draft"])
def test_other_weights_are_noticed(role: str, tmp_path: Path, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = {"a": "Say one."}
    workflow.run(configuration(tmp_path, prompts), STAGES)
    other = replace(pair, **{role: replace(getattr(pair, role), fingerprint="other")})
    monkeypatch.setattr(workflow, "find_models", lambda config: lambda: other)
    watched = Watched()
    workflow.run(configuration(tmp_path, prompts), watched.stages)
    assert {stage for stage, _ in watched.measured} >= {"decode", "speculate"}


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_an_interruption_while_a_result_is_written_leaves_nothing_half(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    config = configuration(tmp_path)
    with monkeypatch.context() as patched:

        def interrupt_writing(stage: str, unit: Unit) -> None:
            if (stage, unit.prompt.prompt_id) == ("decode", "prompt-2"):
                patched.setattr(f"specstudy.tables.files.os.{call}", interrupt)

        with pytest.raises(KeyboardInterrupt):
            workflow.run(config, Watched(interrupt_writing).stages)
    assert list(tmp_path.rglob("*.tmp")) == []
    assert len(list((tmp_path / "store/decode").rglob("*.parquet"))) == 2
    assert not (tmp_path / "latest/tables/decode_runs.parquet").exists()

    watched = Watched()
    assert workflow.run(config, watched.stages) == 0
    assert watched.measured[0] == ("decode", "prompt-2")
    assert len(watched.measured) == 3 + 5


def test_refused_models_or_prompts_leave_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(config: StudyConfig) -> Callable[[], Pair]:
        raise UserError("no such model")

    config = configuration(tmp_path)
    workflow.run(config, [PREFILL])
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(workflow, "find_models", refuse)
    for words in (["seed=1"], ["seed=1", "prompts.categories=[poetry]"]):
        with pytest.raises(UserError):
            workflow.run(configuration(tmp_path, PROMPTS, *words), STAGES)
    assert sorted(tmp_path.rglob("*")) == before


def test_of_two_equal_commands_at_once_the_second_waits_and_measures_nothing(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    both_started, statuses = threading.Event(), []
    first = Watched(lambda stage, unit: None if both_started.wait(60) else pytest.fail("the second did not start"))
    second = Watched()

    def run_second() -> None:
        both_started.set()
        statuses.append(workflow.run(config, second.stages))

    threads = [
        threading.Thread(target=lambda: statuses.append(workflow.run(config, first.stages))),
        threading.Thread(target=run_second),
    ]
    threads[0].start()
    while not (tmp_path / "latest").exists():
        threads[0].join(0.01)
    threads[1].start()
    for thread in threads:
        thread.join(60)
    assert statuses == [0, 0]
    assert (len(first.measured), second.measured) == (15, [])
    assert errors(tmp_path) == []


def test_analyze_measures_what_is_missing_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Sequence[str]] = []
    run = workflow.run

    def noting(config: StudyConfig, stages: Sequence[Stage], after: object = None) -> int:
        ran.append([stage.name for stage in stages])
        return run(config, stages)

    config = configuration(tmp_path)
    run(config, [PREFILL])
    monkeypatch.setattr(studies, "run", noting)
    assert studies.analyze(config) == 0
    monkeypatch.setattr(workflow, "find_models", lambda config: pytest.fail("needs no models"))
    assert studies.analyze(config) == 0
    assert ran == [["decode", "speculate"], []]


def test_units_come_in_the_order_of_the_tables_however_few_are_joined_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of one result: whatever order of units is not that of the keys is refused."""
    rules = ["spec.stop=[entropy,none,entropy]", "spec.stop_threshold=[10,null,0.5]"]
    words = [*rules, "spec.gamma=[10,2]", "spec.temperature=[1,0]", "spec.repetitions=2", "decode.repetitions=2"]
    config = configuration(tmp_path / "whole", {"b": "Two.", "Ä": "Three.", "B": "Four."}, *words)
    assert workflow.run(config, STAGES) == 0
    monkeypatch.setattr("specstudy.tables.run_directory._RESULTS_PER_GROUP", 1)
    same_store = replace(config.execution, store=str(tmp_path / "whole/store"))
    assert workflow.run(replace(config, output_dir=str(tmp_path / "single"), execution=same_store), STAGES) == 0
    whole, single = stage_tables(tmp_path / "whole"), stage_tables(tmp_path / "single")
    assert all(rows.equals(single[name]) for name, rows in whole.items())
    assert whole["spec_runs"].num_rows == 3 * 3 * 2 * 2 * 2
