"""Every file of a model directory, changed in turn: either results get another key, or they are the same results."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from safetensors.torch import load_file, save_file
from small_checkpoints import edit_json, save_model, small_llama
from small_tokenizers import CHATML
from transformers import dynamic_module_utils

from specstudy.config import StudyConfig
from specstudy.overrides import study_config
from specstudy.running import workflow
from specstudy.running.stage import Stage, shared_parts
from specstudy.running.stages.decode import DECODE
from specstudy.running.stages.prefill import PREFILL
from specstudy.running.stages.speculate import SPECULATE
from specstudy.running.tasks import Task, tasks_of
from specstudy.tables.equality import without_timing
from specstudy.tables.schema import to_table

STAGES = (PREFILL, DECODE, SPECULATE)
N_ROWS = 264
"""Five more than the tokenizer has tokens, so that it can be given more."""

Change = Callable[[Path], None]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for seed, role in enumerate(("verifier", "draft")):
        save_model(root / role, small_llama(N_ROWS), seed=seed)
        (root / role / "README.md").write_text("A model.\n")
    (root / "prompts.jsonl").write_text(json.dumps({"prompt_id": "one", "text": "Say one thing."}) + "\n")
    return root


@pytest.fixture
def root(originals: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals, tmp_path / "changed"))


def configured(root: Path, *words: str) -> StudyConfig:
    return study_config(
        [
            *(f"models.{role}={root / role}" for role in ("verifier", "draft")),
            *("prompts=file", f"prompts.path={root / 'prompts.jsonl'}", f"output_dir={root}"),
            *("decode.max_new_tokens=3", "decode.repetitions=1", "spec.repetitions=1", "spec.gamma=2"),
            *("execution.device=cpu", "execution.dtype=float32", "execution.threads=1", *words),
        ]
    )


class Loaded:
    """A pair as its files are now, and one prompt."""

    def __init__(self, root: Path) -> None:
        self.config = configured(root)
        self.pair = workflow.find_models(self.config)()
        self.prompts, failures = workflow.render_all(workflow.chosen_prompts(self.config)[0], self.pair, self.config)
        assert not failures

    def task(self, stage: Stage) -> Task:
        (task,) = tasks_of(stage, self.config, shared_parts(stage, self.config, self.pair), self.prompts)
        return task

    def tables(self, stage: Stage) -> dict[str, pa.Table]:
        measured = stage.measure(self.pair, self.config, self.task(stage).unit)
        return {name: without_timing(to_table(name, rows)) for name, rows in measured.items()}


@pytest.fixture(scope="module")
def unchanged(originals: Path) -> Loaded:
    return Loaded(originals)


def edited(file: str, **changes: object) -> Change:
    return lambda directory: edit_json(directory / file, **changes)


def tokenizer_with(change: Callable[[dict[str, Any]], object]) -> Change:
    def edit(directory: Path) -> None:
        path = directory / "tokenizer.json"
        told = json.loads(path.read_text())
        change(told)
        path.write_text(json.dumps(told))

    return edit


def one_token_more(told: dict[str, Any]) -> None:
    told["added_tokens"].append({**told["added_tokens"][-1], "id": 259, "content": "<|more|>"})


def no_longer_special(told: dict[str, Any]) -> None:
    told["added_tokens"][0]["special"] = False


def one_token_renamed(directory: Path) -> None:
    path = directory / "tokenizer.json"
    path.write_text(path.read_text().replace('"th"', '"ht"').replace('"t",\n        "h"', '"h",\n        "t"'))


def one_bit_of_the_weights(directory: Path) -> None:
    path = directory / "model.safetensors"
    weights = load_file(path)
    weights["model.norm.weight"][0] += 1
    save_file(weights, path, {"format": "pt"})


ALL = {"prefill", "decode", "speculate"}
GENERATING = {"decode", "speculate"}
BOTH = ("verifier", "draft")
ROPE = edited("config.json", rope_parameters={"rope_type": "default", "rope_theta": 5e5})
MORE_ENDS = edited("generation_config.json", eos_token_id=[258, 9])
NUMBERS_CHANGE: dict[str, tuple[Sequence[str], Change, set[str]]] = {
    "the verifier's weights": (["verifier"], one_bit_of_the_weights, ALL),
    "the draft's weights": (["draft"], one_bit_of_the_weights, GENERATING),
    "the verifier's configuration": (["verifier"], ROPE, ALL),
    "the draft's configuration": (["draft"], ROPE, GENERATING),
    "what ends a text": (["verifier"], MORE_ENDS, GENERATING),
    "the template": (["verifier"], lambda path: (path / "chat_template.jinja").write_text(CHATML + " "), ALL),
    "one token more": (BOTH, tokenizer_with(one_token_more), ALL),
    "one token renamed": (BOTH, one_token_renamed, ALL),
    "a token that is no longer special": (BOTH, tokenizer_with(no_longer_special), ALL),
    "how texts are joined": (BOTH, tokenizer_with(lambda told: told.update(decoder={"type": "Fuse"})), ALL),
}
HARMLESS: list[tuple[str, Change]] = [
    ("verifier", edited("config.json", _name_or_path="elsewhere", transformers_version="4.0.0")),
    ("verifier", edited("generation_config.json", temperature=0.1, do_sample=True, top_k=3)),
    ("verifier", edited("tokenizer_config.json", model_max_length=77)),
    ("verifier", lambda path: (path / "chat_template.jinja").write_text("{# plain #}" + CHATML)),
    ("verifier", lambda path: (path / "README.md").write_text("Another model.\n")),
    ("draft", MORE_ENDS),
    ("draft", lambda path: (path / "chat_template.jinja").write_text(CHATML + " ")),
    ("draft", lambda path: (path / "README.md").unlink()),
]


@pytest.mark.parametrize("name", NUMBERS_CHANGE)
def test_a_change_of_numbers_is_a_change_of_keys(name: str, root: Path, unchanged: Loaded) -> None:
    roles, change, expected = NUMBERS_CHANGE[name]
    for role in roles:
        change(root / role)
    now = Loaded(root)
    assert {stage.name for stage in STAGES if now.task(stage).key != unchanged.task(stage).key} == expected


def test_what_is_in_no_key_changes_no_number(root: Path, unchanged: Loaded) -> None:
    for role, change in HARMLESS:
        change(root / role)
    now = Loaded(root)
    assert [now.task(stage).key for stage in STAGES] == [unchanged.task(stage).key for stage in STAGES]
    assert [now.tables(stage) for stage in STAGES] == [unchanged.tables(stage) for stage in STAGES]


def test_every_file_of_a_model_is_changed_here(root: Path, originals: Path) -> None:
    changes = [(role, change) for roles, change, _ in NUMBERS_CHANGE.values() for role in roles]
    for role, change in [*changes, *HARMLESS]:
        change(root / role)
    for role in BOTH:
        left = [f.name for f in (root / role).iterdir() if f.read_bytes() == (originals / role / f.name).read_bytes()]
        assert left == (["tokenizer_config.json"] if role == "draft" else [])


def test_code_that_a_model_brings_along_is_part_of_the_key(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(root / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    code = root / "verifier" / "modeling_own.py"
    edit_json(root / "verifier" / "config.json", auto_map={"AutoModelForCausalLM": "modeling_own.Own"})
    parts = []
    for scale in (1, 1, 2):
        code.write_text(
            f"from transformers import LlamaForCausalLM\nclass Own(LlamaForCausalLM):\n    scale = {scale}\n"
        )
        pair = workflow.find_models(configured(root, "models.trust_remote_code=true"))()
        assert type(pair.verifier.module).__name__ == "Own"
        parts.append(shared_parts(PREFILL, configured(root), pair))
    assert parts[0] == parts[1]
    assert {name for name in parts[0] if parts[0][name] != parts[2][name]} == {"verifier_code"}
