"""Every block of docs/cookbook.md is run on a made-up study; numbers are checked against plain loops."""

from __future__ import annotations

import ast
import math
import re
import statistics
import warnings
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from scipy import stats
from small_tokenizers import CHATML_MARKS, byte_level_tokenizer
from synthetic import CATEGORIES, Plan, make_tables
from synthetic_run import write_run

from specstudy.config import PROJECT_ROOT

TEXT = "Zürich, 日本 😀 ok"
PLAN = Plan(n_per_category=2, n_answer_tokens=len(TEXT.encode()) + 1, repetitions=2, gammas=(2, 4))
Tables = dict[str, pd.DataFrame]


def blocks() -> dict[str, str]:
    """The one block of code under each heading; under "" and "units" those before the first question."""
    page = (PROJECT_ROOT / "docs/cookbook.md").read_text(encoding="utf-8")
    found = {}
    for section in re.split(r"^## ", page, flags=re.MULTILINE):
        codes = re.findall(r"^```python\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)
        if section.startswith("# "):
            found[""], found["units"] = codes
        else:
            (found[section.partition(".")[0]],) = codes
    return found


BLOCKS = blocks()


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tables]:
    """A directory with a run in outputs/, and its tables: one answer has real ids, last rounds are short."""
    root = tmp_path_factory.mktemp("cookbook")
    tables = make_tables(PLAN)
    tokenizer = byte_level_tokenizer(special=CHATML_MARKS)
    tokenizer.save_pretrained(root / "verifier")
    ids = [*tokenizer.encode(TEXT), tokenizer.convert_tokens_to_ids("<|im_end|>")]
    of_answer = (tables["decode_tokens"]["prompt_id"] == "factual-01") & (tables["decode_tokens"]["repetition"] == 0)
    tables["decode_tokens"].loc[of_answer, "token_id"] = ids
    tables["decode_tokens"].loc[of_answer, "token"] = [tokenizer.decode([i]) for i in ids]
    rounds = tables["spec_rounds"]
    short = (rounds["round"] == rounds["round"].max()) & (rounds["gamma"] > 2)
    rounds.loc[short, ["n_proposed", "n_tested", "n_accepted", "n_emitted"]] = [1, 1, 1, 2]
    write_run(root / "outputs", tables, {"models": {"verifier": str(root / "verifier")}})
    return root, tables


@pytest.fixture
def answer(study: tuple[Path, Tables], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the block of a question and gives the value of its last expression."""
    monkeypatch.chdir(study[0])

    def run(question: str) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.PandasChangeWarning)
            names: dict[str, object] = {}
            exec(BLOCKS[""], names)
            *statements, last = ast.parse(BLOCKS[question]).body
            assert isinstance(last, ast.Expr), "a block ends in the answer"
            exec(compile(ast.Module(statements, []), "cookbook", "exec"), names)
            return eval(compile(ast.Expression(last.value), "cookbook", "eval"), names)

    return run


def means(frame: pd.DataFrame, keys: list[str], column: str) -> dict[Any, float]:
    """Mean of a column by keys, row by row."""
    collected = defaultdict(list)
    for row in frame.to_dict("records"):
        collected[tuple(row[key] for key in keys)].append(float(row[column]))
    return {key: statistics.fmean(values) for key, values in collected.items()}


def lists(values: Mapping[Any, float], *places: int) -> dict[Any, list[float]]:
    """The values by the given places of their keys."""
    collected = defaultdict(list)
    for key, value in values.items():
        group = tuple(key[place] for place in places)
        collected[group[0] if len(group) == 1 else group].append(value)
    return dict(collected)


def sem(values: list[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))


def test_there_are_ten_questions() -> None:
    assert list(BLOCKS) == ["", "units", *map(str, range(1, 11))]


@pytest.mark.parametrize("question", [question for question in BLOCKS if question])
def test_every_block_has_an_answer(question: str, answer: Any) -> None:
    found = answer(question)
    assert len(found) > 0
    if isinstance(found, pd.DataFrame | pd.Series):
        # The end of a template lies inside the observation window, where there is no measure of it.
        assert found.drop("window_sinks", axis=found.ndim - 1, errors="ignore").notna().all(axis=None)
    else:
        assert isinstance(found, str)


def test_units_and_meanings(answer: Any) -> None:
    found = answer("units")
    assert found.loc["draft_s"].tolist() == ["forward passes of the draft", "s"]
    assert found.loc["n_accepted", "unit"] == ""


def test_lowest_acceptance(study: tuple[Path, Tables], answer: Any) -> None:
    expected = means(study[1]["spec_runs"], ["gamma", "category", "prompt_id"], "alpha_expected")
    lowest = sorted(expected, key=lambda key: expected[key])[:5]
    found = answer("1")
    assert list(found.index) == lowest
    assert found.tolist() == pytest.approx([expected[key] for key in lowest])


def test_acceptance_by_quarter_of_entropy(study: tuple[Path, Tables], answer: Any) -> None:
    by_quarter = defaultdict(list)
    for _, tokens in study[1]["decode_tokens"].groupby("prompt_id"):
        accepted = [a for _, a in sorted(zip(tokens["entropy_bits"], tokens["expected_accept"], strict=True))]
        edges = [len(accepted) * quarter // 4 for quarter in range(5)]
        for quarter in range(4):
            by_quarter[quarter + 1].append(statistics.fmean(accepted[edges[quarter] : edges[quarter + 1]]))
    found = answer("2")
    assert found["mean"].to_dict() == pytest.approx({q: statistics.fmean(v) for q, v in by_quarter.items()})
    assert found["sem"].to_dict() == pytest.approx({q: sem(v) for q, v in by_quarter.items()})


def test_rounds_that_accept_everything(study: tuple[Path, Tables], answer: Any) -> None:
    fates = defaultdict(list)
    for row in study[1]["spec_rounds"].to_dict("records"):
        if row["n_proposed"] == row["gamma"]:
            fates[row["gamma"], row["category"]].append(row["n_accepted"] == row["gamma"])
    found = answer("3").stack().to_dict()
    assert found == pytest.approx({key: sum(full) / len(full) for key, full in fates.items()})
    assert all(0 < value < 1 for value in found.values())


def test_surprisal(study: tuple[Path, Tables], answer: Any) -> None:
    found = answer("4")
    assert len(found) == 10
    assert found["surprisal_bits"].iloc[0] == pytest.approx(
        -math.log2(math.exp(study[1]["decode_tokens"]["logprob"].min()))
    )
    assert set(found["likeliest"]) == {" the"}


def test_sinks_by_part(study: tuple[Path, Tables], answer: Any) -> None:
    found = answer("5")
    assert found.index[0] == "position 0"
    assert found["positions"].sum() == len(study[1]["prefill_tokens"])
    assert found.loc["position 0", "positions"] == 10
    names = study[1]["prefill_tokens"].query("structural_role == 'role_name'")
    assert found.loc["role_name", "sinks"] == names["is_sink"].sum() / len(names)
    assert {"content", "end_marker", "generation_prompt"} < set(found.index)


def test_attention_at_prefill_and_while_writing(study: tuple[Path, Tables], answer: Any) -> None:
    tables, found = study[1], answer("6")
    assert len(found) == 10
    tokens = tables["prefill_tokens"].query("prompt_id == 'math-02' and not is_structural").set_index("position")
    seen = means(tables["decode_attention"].query("prompt_id == 'math-02'"), ["position"], "attention_from_generated")
    kept = [p for p in tokens.index if not math.isnan(tokens.loc[p, "attention_window"])]
    expected = stats.spearmanr([tokens.loc[p, "attention_window"] for p in kept], [seen[p,] for p in kept]).statistic
    assert found.loc["math-02"].tolist() == [len(kept), pytest.approx(expected)]


def test_speedup_by_category(study: tuple[Path, Tables], answer: Any) -> None:
    by_prompt = means(study[1]["spec_runs"], ["gamma", "category", "prompt_id"], "speedup")
    expected = {key: (statistics.median(v), 2) for key, v in lists(by_prompt, 0, 1).items()}
    found = answer("7")
    assert list(found.index) == [(gamma, category) for gamma in (2, 4) for category in CATEGORIES]
    for key, row in found.iterrows():
        assert tuple(row) == pytest.approx(expected[key])


def test_the_exact_text(study: tuple[Path, Tables], answer: Any) -> None:
    assert answer("8") == TEXT
    tokens = study[1]["decode_tokens"].query("prompt_id == 'factual-01' and repetition == 0")
    assert "�" in "".join(tokens["token"])


def test_word_starts(study: tuple[Path, Tables], answer: Any) -> None:
    by_prompt = means(study[1]["decode_tokens"], ["prompt_id", "is_word_start"], "entropy_bits")
    differences = [by_prompt[name, True] - by_prompt[name, False] for name in lists(by_prompt, 0)]
    found = answer("9")["entropy_bits"]
    assert found.tolist() == pytest.approx([statistics.fmean(differences), sem(differences), 10])


def test_time_of_a_round(study: tuple[Path, Tables], answer: Any) -> None:
    found = answer("10")
    rows = study[1]["spec_rounds"].query("gamma == 4")
    total = sum(sum(rows[part]) for part in ("draft_s", "verify_s", "overhead_s"))
    assert found.loc[4, "verify_s"] == pytest.approx(sum(rows["verify_s"]) / total)
    assert found.loc[4, "round_ms"] == pytest.approx(1000 * total / len(rows))
    assert found[["draft_s", "verify_s", "overhead_s"]].sum(axis=1).tolist() == pytest.approx([1, 1])
