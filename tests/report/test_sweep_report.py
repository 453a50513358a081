from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
from matplotlib.image import imread

from specstudy.analysis.sweep import DRAFT_COLUMNS, ENTROPY_LINK, SWEEP_MEASURES, Sweep
from specstudy.report.sweep import draw_sweep, print_sweep


def made(key: str, values: list[object], n_errors: int = 0) -> Sweep:
    """A sweep whose measures are 0.5 with an interval of 0.4 to 0.6, undefined at the first point."""
    rows = pd.DataFrame({key: values, "run": "run", "n_prompts": 50, "n_errors": n_errors, "busy": ""})
    for measure in (*SWEEP_MEASURES, ENTROPY_LINK):
        for column, value in ((measure, 0.5), (f"{measure}_low", 0.4), (f"{measure}_high", 0.6)):
            rows[column] = [float("nan"), *[value] * (len(values) - 1)]
    return Sweep([key], rows.assign(**dict.fromkeys(DRAFT_COLUMNS, float("nan"))))


def drafts() -> Sweep:
    """Drafts of one layer and of two, trained on two amounts each."""
    joint = made("models.draft", [f"/a/directory/of/drafts/number-{i}" for i in range(4)])
    rows = joint.rows.assign(draft_n_layers=[2, 1, 2, 1], draft_n_training_answers=[1200, 600, 600, 1200])
    return Sweep(joint.keys, rows)


def test_a_row_a_point_with_intervals_and_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    print_sweep(made("spec.gamma", [2, 4, 6], n_errors=1), [Path("/a/sweep.parquet")])
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert max(map(len, lines)) <= 100
    assert [line.split()[:2] for line in lines if line[1:2].isdigit()] == [["2", "50"], ["4", "50"], ["6", "50"]]
    assert printed.count("[0.40, 0.60]") == 2 * 4
    assert printed.count(" (1) ") == 3
    assert "spec.gamma" in printed
    assert lines[-1] == "/a/sweep.parquet"
    assert "\x1b" not in printed


def test_speeds_of_a_busy_machine_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    joint = made("spec.gamma", [2, 4, 6])
    print_sweep(Sweep(joint.keys, joint.rows.assign(busy=["", "load", ""])), [])
    printed = capsys.readouterr().out
    assert printed.count("0.50*") == 1
    assert "busy at 1 of 3 points" in printed


def test_names_of_data_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_sweep(made("models.draft", ["[red]a", "[/]"]), [])
    printed = capsys.readouterr().out
    assert "[red]a" in printed
    assert "[/]" in printed


def test_one_number_that_varies_is_drawn(tmp_path: Path) -> None:
    png, svg = draw_sweep(made("spec.gamma", [6, 2, 4]), tmp_path)
    assert (png.name, svg.name) == ("sweep.png", "sweep.svg")
    assert imread(png).std() > 0.01
    words = "".join(ElementTree.parse(svg).getroot().itertext())
    assert words.count("spec.gamma") == 3
    assert "n = 50 prompts a point" in words


def test_drafts_are_shown_and_drawn_by_layers_and_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = draw_sweep(drafts(), tmp_path)
    assert [file.name for file in files] == ["draft_depth.png", "draft_depth.svg"]
    assert "mathdefault" not in files[1].read_text(), "amounts stand there in the markup of formulas"
    words = " ".join(ElementTree.parse(files[1]).getroot().itertext())
    assert words.count("answers distilled on") == 3
    assert "1 layer" in words
    assert "2 layers" in words
    print_sweep(drafts(), [])
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 100
    assert "1,200" in printed
    assert "link" in printed
    assert printed.count("[0.40, 0.60]") == 3 * 3


def test_what_is_no_number_is_not_drawn(tmp_path: Path) -> None:
    assert draw_sweep(made("models.draft", ["a", "b"]), tmp_path) == []
    assert list(tmp_path.iterdir()) == []
