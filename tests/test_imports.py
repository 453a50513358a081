"""Imports run one way, in two strands: the models' and the tables'. Only `running` wires the two together."""

import subprocess
import sys
from pathlib import Path

import pytest

from specstudy.config import PROJECT_ROOT
from specstudy.running.measuring_code import imported_names

SOURCE = PROJECT_ROOT / "src/specstudy"
GROUND = {"errors", "rules", "config", "records", "formulas", "routing_formulas", "seeds", "condition", "clock"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "records": set(),
    "seeds": set(),
    "clock": set(),
    "routing_formulas": set(),
    "condition": set(),
    "formulas": {"errors"},
    "rules": {"errors"},
    "config": {"errors", "rules", "condition"},
    "overrides": {"errors", "rules", "config", "tables"},
    "prompts": GROUND,
    "models": GROUND,
    "measure": GROUND | {"prompts", "models"},
    "distill": GROUND | {"prompts", "models", "measure"},
    "tables": GROUND,
    "analysis": GROUND | {"tables"},
    "report": GROUND | {"tables", "analysis"},
    "command_line": GROUND | {"overrides", "models", "tables"},
    "__init__": {"tables", "overrides", "running"},
}
MAY_IMPORT["running"] = MAY_IMPORT.keys() - {"command_line", "__init__"}
NEEDS_TORCH = {"models", "measure", "distill"}


def part_of(file: Path) -> str:
    """The first name below the package: `models` for models/load.py, `config` for config.py."""
    return file.relative_to(SOURCE).with_suffix("").parts[0]


def imported_modules(file: Path) -> frozenset[str]:
    """Full names of all that a file imports anywhere, inside functions too."""
    return imported_names(file.read_bytes())


SOURCE_FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("file", SOURCE_FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_run_one_way(file: Path) -> None:
    own = part_of(file)
    imported = {module.split(".")[1] for module in imported_modules(file) if module.startswith("specstudy.")}
    assert imported.intersection(part_of(file) for file in SOURCE_FILES) - {own} <= MAY_IMPORT[own]


@pytest.mark.parametrize("file", SOURCE_FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_the_project_does_not_reach_into_its_commands_or_tests(file: Path) -> None:
    assert not {module.partition(".")[0] for module in imported_modules(file)} & {"pipelines", "tests"}


def test_a_wrong_direction_would_be_seen(tmp_path: Path) -> None:
    file = tmp_path / "late.py"
    file.write_text("def f():\n    from specstudy import models\n    import specstudy.measure.decode\n")
    assert imported_modules(file) == {"specstudy.models", "specstudy.measure.decode"}


def test_everything_but_the_models_strand_works_without_torch() -> None:
    modules = [
        ".".join(("specstudy", *file.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for file in SOURCE_FILES
        if part_of(file) not in NEEDS_TORCH
    ]
    script = f"""
import importlib, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers"):
            raise ImportError(f"{{name}} is blocked")
sys.meta_path.insert(0, Blocked())
for name in {modules!r}:
    importlib.import_module(name)
"""
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert finished.returncode == 0, finished.stderr
