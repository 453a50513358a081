"""A stage's code is what it imports, wherever it does so; nothing that changes its numbers can stay unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from specstudy.running.measuring_code import (
    NO_PART_OF_A_NUMBER,
    SOURCE,
    STAGES,
    code_hash,
    imported_names,
    measuring_files,
)

NAMES = ("prefill", "decode", "speculate", "routing", "retention")


def names_of(stage: str) -> set[str]:
    return {file.relative_to(SOURCE / "specstudy").as_posix() for file in measuring_files(STAGES / f"{stage}.py")}


def planted(root: Path, **files: str) -> Path:
    """A package: `a__b` is src/specstudy/a/b.py, names without a `__` lie among the stages."""
    for name, content in {"stage": "", **files}.items():
        place = name.replace("__", "/") if "__" in name else f"running/stages/{name}"
        path = root / f"src/specstudy/{place}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def found(root: Path) -> set[str]:
    return {file.stem for file in measuring_files(root / "src/specstudy/running/stages/stage.py", root / "src")}


@pytest.mark.parametrize(
    "stage",
    [
        "import specstudy.measure.first",
        "from specstudy.measure import first",
        "from specstudy.measure.first import anything",
        "def measure():\n    from specstudy.measure.first import anything\n",
        "def measure():\n    if True:\n        import specstudy.measure.first as other\n",
        "from specstudy.running.stages.helper import anything",
        "def measure():\n    import specstudy.running.stages.helper\n",
    ],
)
def test_a_new_import_is_followed_wherever_it_stands(stage: str, tmp_path: Path) -> None:
    root = planted(
        tmp_path,
        stage=stage,
        helper="from specstudy.measure.first import x",
        measure__first="def f():\n    from specstudy.models.second import x\n",
        models__second="import json, numpy",
        models__unused="",
    )
    assert found(root) - {"helper"} == {"stage", "first", "second"}
    before = code_hash(measuring_files(root / "src/specstudy/running/stages/stage.py", root / "src"), root)
    (root / "src/specstudy/models/second.py").write_text("import json, numpy\nX = 2\n")
    assert code_hash(measuring_files(root / "src/specstudy/running/stages/stage.py", root / "src"), root) != before


def test_what_a_package_gives_again_is_followed_there(tmp_path: Path) -> None:
    root = planted(tmp_path, stage="from specstudy.models import X", models__second="")
    (root / "src/specstudy/models/__init__.py").write_text("from specstudy.models.second import X")
    assert found(root) == {"stage", "__init__", "second"}


def test_circles_end(tmp_path: Path) -> None:
    root = planted(tmp_path, stage="import specstudy.models.a", models__a="import specstudy.models.b", models__b="")
    (root / "src/specstudy/models/b.py").write_text(
        "import specstudy.models.a\nimport specstudy.running.stages.stage\n"
    )
    assert found(root) == {"stage", "a", "b"}


def test_wiring_is_left_out_by_the_name_alone(tmp_path: Path) -> None:
    root = planted(tmp_path, stage="from specstudy.config import StudyConfig", __config="")
    assert found(root) == {"stage"}
    (root / "src/specstudy/running/stages/stage.py").write_text("from specstudy.config import StudyConfig, scale")
    assert found(root) == {"stage", "config"}


@pytest.mark.parametrize("stage", NAMES)
def test_a_stage_knows_how_models_are_loaded_and_run_and_nothing_of_tables_or_analysis(stage: str) -> None:
    package = names_of(stage)
    assert {f"running/stages/{stage}.py", "models/load.py", "models/attention.py", "models/cache.py"} <= package
    assert {"measure/sinks.py", "formulas.py", "records.py"} <= package
    assert {name.split("/")[0] for name in package} <= {
        *("running", "models", "measure", "prompts"),
        *("formulas.py", "routing_formulas.py", "records.py", "seeds.py", "condition.py", "clock.py"),
    }
    assert {name for name in package if name.startswith("prompts/")} == {"prompts/prompt.py"}
    assert {name for name in package if name.startswith("running/")} <= {f"running/stages/{n}.py" for n in NAMES}


def test_what_is_left_out_is_used() -> None:
    used = frozenset().union(
        *(imported_names(f.read_bytes()) for name in NAMES for f in measuring_files(STAGES / f"{name}.py"))
    )
    assert used >= NO_PART_OF_A_NUMBER


def test_no_import_hides_from_the_search() -> None:
    files = list(SOURCE.rglob("*.py"))
    assert len(files) > 100
    assert [
        file for file in files if {"importlib.import_module", "importlib"} & imported_names(file.read_bytes())
    ] == []
    assert [file for file in files if "__import__(" in file.read_text()] == []
    with pytest.raises(ValueError, match="a relative import in line 2"):
        imported_names(b"import a\nfrom . import b\n")


def test_parents_of_modules_hold_nothing_but_imports() -> None:
    import ast

    for package in ("prompts", "models", "measure"):
        body = ast.parse((SOURCE / "specstudy" / package / "__init__.py").read_text()).body
        others = [node for node in body if not isinstance(node, ast.Expr | ast.ImportFrom)]
        assert [ast.unparse(node)[:10] for node in others] in ([], ["__all__ = "])


def source_tree(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def hash_of(root: Path, files: dict[str, bytes]) -> str:
    source_tree(root, files)
    return code_hash([root / name for name in files], root)


def test_a_hash_sees_names_and_contents_but_not_line_ends_or_order(tmp_path: Path) -> None:
    files = {"measure/decode.py": b"a = 1\nb = 2\n", "measure/deep/sinks.py": b"", "seeds.py": b"c\n"}
    original = hash_of(tmp_path / "original", files)
    same = dict(reversed((files | {"measure/decode.py": b"a = 1\r\nb = 2\r\n"}).items()))
    assert hash_of(tmp_path / "same", same) == original
    others = [
        files | {"seeds.py": b"d\n"},
        files | {"measure/new.py": b""},
        {"measure/decode.py": b"a = 1\nb = 2\nc\n", "measure/deep/sinks.py": b"", "seeds.py": b""},
        {"measure/decode.py": b"a = 1\nb = 2\n", "measure/sinks.py": b"", "seeds.py": b"c\n"},
        {"measure/decode.py": b"a = 1\nb = 2\nmeasure/deep/sinks.py", "seeds.py": b"c\n"},
    ]
    hashes = {hash_of(tmp_path / str(n), tree) for n, tree in enumerate(others)}
    assert len(hashes | {original}) == 6
