"""What very many prompts hold in memory is little more than their texts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tiny_study import configuration

from specstudy.models.load import Pair
from specstudy.running import workflow
from specstudy.running.stage import shared_parts
from specstudy.running.stages.prefill import PREFILL
from specstudy.running.tasks import tasks_of
from specstudy.tables.store import result_key

pytestmark = pytest.mark.usefixtures("tiny_models")


def test_positions_that_are_alike_are_one_and_keys_are_not_kept_in_parts(tmp_path: Path, pair: Pair) -> None:
    config = configuration(tmp_path, {f"prompt-{i}": "Say one, or one more." for i in range(50)})
    prompts, failures = workflow.render_all(workflow.chosen_prompts(config)[0], pair, config)
    assert not failures
    assert len({id(position) for prompt in prompts for position in prompt.positions}) == len(
        {position for prompt in prompts for position in prompt.positions}
    )
    shared = shared_parts(PREFILL, config, pair)
    tasks = tasks_of(PREFILL, config, shared, prompts)
    assert [task.key for task in tasks] == [result_key(task.parts) for task in tasks]
    assert all(task.shared is shared for task in tasks)
    assert max(sys.getsizeof(value) for task in tasks for value in vars(task).values() if value is not shared) < 300
