"""Files of public benchmarks, in small, with the settings that docs/prompts.md names for each."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from specstudy.config import PROJECT_ROOT
from specstudy.overrides import study_config
from specstudy.prompts import Message, Prompt
from specstudy.running import workflow


def lines(*rows: object) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


HUMAN_EVAL = {"task_id": "HumanEval/0", "prompt": "def f():\n", "canonical_solution": "    pass\n", "entry_point": "f"}
TRUTHFUL = (
    "Type,Category,Question,Best Answer,Correct Answers,Incorrect Answers,Source\r\n"
    'Adversarial,Science,"Is it so, or not?",No,"No; never",Yes,https://example.org\r\n'
)
FILES = {
    "MT-bench, Spec-Bench": (
        lines({"question_id": 81, "category": "writing", "turns": ["Write.", "Again."], "reference": ["a"]}),
        Prompt("81", "writing", "Write."),
        ["1 of 1 prompts have several turns: the first is the prompt", "not used: reference"],
    ),
    "HumanEval": (
        gzip.compress(lines(HUMAN_EVAL)),
        Prompt("HumanEval/0", "own", "def f():\n"),
        ["not used: canonical_solution, entry_point"],
    ),
    "GSM8K": (
        lines({"question": "2 + 3?", "answer": "5\n#### 5"}),
        Prompt("test-0001", "own", "2 + 3?"),
        ["not used: answer"],
    ),
    "Alpaca": (
        json.dumps([{"instruction": "Add.", "input": "2, 3", "output": "5"}]).encode(),
        Prompt("alpaca_data-0001", "own", "Add.\n\n2, 3"),
        ["not used: output"],
    ),
    "TruthfulQA": (
        TRUTHFUL.encode(),
        Prompt("TruthfulQA-0002", "Science", "Is it so, or not?"),
        ["not used: Type, Best Answer, Correct Answers, Incorrect Answers, Source"],
    ),
    "ShareGPT": (
        json.dumps(
            [
                {
                    "id": "a_0",
                    "conversations": [
                        {"from": "human", "value": "Hi"},
                        {"from": "gpt", "value": "Ho"},
                        {"from": "human", "value": "Why?"},
                        {"from": "gpt", "value": "So."},
                    ],
                }
            ]
        ).encode(),
        Prompt("a_0", "own", "Why?", None, (Message("user", "Hi"), Message("assistant", "Ho"))),
        ["1 of 1 prompts end in an answer: the last message of the user gets answered"],
    ),
}
TABLE = {
    name: (file, settings.split())
    for name, file, settings in re.findall(
        r"^\| ([^|]+) \| `([^`]+)` \| `([^`]+)` \|$", (PROJECT_ROOT / "docs/prompts.md").read_text(), re.MULTILINE
    )
}


def test_every_file_of_the_table_is_tried_here() -> None:
    assert TABLE.keys() == FILES.keys()
    assert all(len(settings) <= 2 for _, settings in TABLE.values())


@pytest.mark.parametrize("benchmark", FILES)
def test_a_benchmark_is_read_as_it_comes(benchmark: str, tmp_path: Path) -> None:
    name, settings = TABLE[benchmark]
    content, prompt, notes = FILES[benchmark]
    (tmp_path / name).write_bytes(content)
    config = study_config(["prompts=file", f"prompts.path={tmp_path / name}", *settings])
    assert workflow.chosen_prompts(config) == ([prompt], [f"{tmp_path / name}: {note}" for note in notes])
