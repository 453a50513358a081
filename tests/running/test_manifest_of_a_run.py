"""manifest.json of a study of tiny models: all that it takes to understand the run and to do it again, and true."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_study import PROMPTS, configuration

from specstudy import open_run
from specstudy.config import StudyConfig, to_mapping
from specstudy.models.load import Pair
from specstudy.running import workflow
from specstudy.running.stage import Stage
from specstudy.running.stages.decode import DECODE
from specstudy.running.stages.prefill import PREFILL
from specstudy.running.stages.speculate import SPECULATE
from specstudy.tables.schema import SCHEMA_VERSION

pytestmark = pytest.mark.usefixtures("tiny_models")

STAGES = (PREFILL, DECODE, SPECULATE)


def manifest_of(config: StudyConfig, stages: Sequence[Stage] = STAGES) -> dict[str, Any]:
    assert workflow.run(config, stages) == 0
    return open_run(Path(config.output_dir) / "latest").manifest


def test_everything_is_there_and_true(tmp_path: Path, pair: Pair) -> None:
    config = configuration(tmp_path, PROMPTS, "seed=7", "analysis.seed=8", "spec.temperature=[0.0,1.0]", "spec.top_p=1")
    begun = datetime.now().astimezone()
    manifest = manifest_of(config)
    assert manifest["schema_version"] == SCHEMA_VERSION
    packages = manifest["environment"]["packages"]
    assert (packages["torch"], packages["transformers"]) == (torch.__version__, transformers.__version__)
    git = manifest["environment"]["git"]
    assert git is None or (len(git["commit"]) == 40 and git["dirty"] in (True, False))
    assert manifest["execution"] == {"device": "cpu", "dtype": "float32", "threads": torch.get_num_threads()}
    for role in ("verifier", "draft"):
        entry = manifest["models"][role]
        assert entry["sha256"] == getattr(pair, role).fingerprint
        assert entry["linear_layers"] == "plain"
        assert entry["generation"] == {
            "temperature": {"decode": 0.7, "speculate": [0.0, 1.0]},
            "top_p": {"decode": 0.9, "speculate": [1.0]},
            "top_k": None,
            "repetition_penalty": None,
            "eos_token_ids": list(pair.eos_ids),
        }
    assert manifest["models"]["verifier"]["sha256"] != manifest["models"]["draft"]["sha256"]
    assert (manifest["prompts"]["name"], manifest["prompts"]["n_prompts"]) == ("file", len(PROMPTS))
    assert manifest["config"] == to_mapping(config)
    assert manifest["seeds"] == {"seed": 7, "analysis": 8}
    assert manifest["code"] == {stage.name: stage.code for stage in STAGES}
    assert set(manifest["stages"]) == set(manifest["measured_with"]) == {stage.name for stage in STAGES}
    start, end = (datetime.fromisoformat(manifest["time"][name]) for name in ("start", "end"))
    assert begun.replace(microsecond=0) <= start <= end <= datetime.now().astimezone()
    assert set(manifest["self_checks"]) == {"speculate"}
    assert manifest["self_checks"]["speculate"]["verifier_logits"]["n_logits"] > 0


def test_another_set_of_prompts_has_another_hash(tmp_path: Path) -> None:
    other = {**PROMPTS, "prompt-4": "Say four in a few words."}
    first, second, again = (
        manifest_of(configuration(tmp_path / name, prompts), [PREFILL])["prompts"]["sha256"]
        for name, prompts in (("a", PROMPTS), ("b", other), ("c", PROMPTS))
    )
    assert first == again != second
