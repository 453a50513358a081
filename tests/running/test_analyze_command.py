"""Answers and figures of a run from its tables alone, by the commands."""

from __future__ import annotations

import hashlib
import json
import shutil
from importlib import resources
from pathlib import Path

import pytest
from synthetic import Plan, make_tables
from synthetic_run import write_run

from specstudy.config import AnalysisConfig, StudyConfig, to_mapping
from specstudy.running.answer import answer
from specstudy.running.figures import figures

CONFIG = StudyConfig(analysis=AnalysisConfig(bootstrap_samples=200))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    tables = make_tables(Plan(n_per_category=2, n_answer_tokens=12))
    path = write_run(tmp_path_factory.mktemp("run"), tables, to_mapping(CONFIG), {"config": to_mapping(CONFIG)})
    answer(path, CONFIG)
    return path


def test_figures_are_drawn_again_from_tables_alone_and_the_page_with_them(run, capsys):
    drawn = {path.name: path.read_bytes() for path in (run / "figures").iterdir()}
    shutil.rmtree(run / "figures")
    (run / "report.html").write_text("with figures as they were")
    figures(run=str(run))
    assert {path.name: path.read_bytes() for path in (run / "figures").iterdir()} == drawn
    assert {Path(line).name for line in capsys.readouterr().out.split()} == {*drawn, "report.html"}
    n_figures = sum(name.endswith(".svg") for name in drawn)
    assert (run / "report.html").read_text().count('<figure id="figure-') == n_figures > 0


def test_the_manifest_holds_the_hash_of_the_claims_that_were_answered(run):
    declared = resources.files("specstudy.analysis").joinpath("claims.yaml").read_bytes()
    written = json.loads((run / "manifest.json").read_text())
    assert written["claims"]["sha256_when_answered"] == hashlib.sha256(declared).hexdigest()
