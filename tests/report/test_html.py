from __future__ import annotations

import errno
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from analysed import FAST, analysed
from synthetic import CATEGORIES, Plan, make_tables

from specstudy.analysis.declarations import Declaration, declarations
from specstudy.analysis.study import analyze
from specstudy.errors import UserError
from specstudy.report import html
from specstudy.report.chapters import CHAPTERS, answer, prompts
from specstudy.report.figures import DRAWERS
from specstudy.report.narrative.overview import verdict_words

MANIFEST = {
    "schema_version": 1,
    "config": {
        "models": {"verifier": "big<model>", "draft": "small"},
        "prompts": {"name": "mine"},
        "spec": {"gamma": [2, 4]},
    },
    "environment": {"packages": {"numpy": "2"}, "python": "3.11"},
    "self_checks": {"speculate": {"key": "00ff", "passed": True, "greedy": {"passed": True, "n_equal": 32}}},
}


def margins(declared: Declaration) -> list[float]:
    """Where the scale of a link draws what the claim has to pass."""
    result, _ = analysed()
    result = replace(
        result, declarations=[declared if d.id == "attention_to_entropy" else d for d in result.declarations]
    )
    found = answer.CHAPTER.context(result, {}, {})
    environment = html._environment(Path())
    page = environment.get_template("chapters/answer.html.j2").render({**found, "links": found["links"][:1]})
    return [float(x) for x in re.findall(r'<line x1="([-.0-9]+)"[^>]*class="margin"', page)]


@pytest.mark.parametrize(
    ("verdict", "low", "high", "direction", "told"),
    [
        ("contradicted", -0.05, 0.08, "greater", "smaller than claimed"),
        ("contradicted", -0.3, 0.08, "greater", "contradicted"),
        ("contradicted", 0.2, 0.5, "equivalent", "contradicted"),
        ("supported", 0.2, 0.5, "greater", "supported"),
        ("not_run", None, None, "greater", "not run"),
    ],
)
def test_an_effect_within_the_margin_is_smaller_than_claimed_and_not_turned_round(verdict, low, high, direction, told):
    claim = analysed()[0].claims[0]
    claim = replace(claim, verdict=verdict, ci_low=low, ci_high=high, direction=direction, reference=0.0, margin=0.1)
    assert verdict_words(claim) == told


def test_a_scale_shows_every_value_at_which_the_verdict_turns():
    declared = next(d for d in declarations() if d.id == "attention_to_entropy")
    assert margins(declared) == [-10.0]
    assert margins(replace(declared, direction="equivalent")) == [-10.0, 10.0]


class Page(HTMLParser):
    """Tags, ids and texts of a page, with every element closed in order."""

    VOID = frozenset({"meta", "br", "line", "circle", "link", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def rendered(result, tables, directory: Path, manifest=MANIFEST, figures: Path = Path("none")) -> str:
    html.render(result, tables, manifest, figures, directory / "report.html")
    return (directory / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def nasty_page(drawn_study, tmp_path_factory) -> str:
    study = drawn_study
    return rendered(study.result, study.tables, tmp_path_factory.mktemp("report"), figures=study.directory)


def test_the_page_is_whole_and_holds_every_figure(nasty_page):
    page = Page(nasty_page)
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    here = set(DRAWERS) - {"lowered_sinks"}  # of versions that this study does not have
    assert {i for i in page.ids if i.startswith("figure-")} == {f"figure-{name}" for name in here}
    assert page.tags.count("details") > 10


def test_every_chapter_is_in_the_page_and_in_its_contents_in_order(nasty_page):
    contents = nasty_page[nasty_page.index("<nav") : nasty_page.index("</nav>")]
    assert re.findall(r'href="#(\w+)"', contents) == [chapter.name for chapter in CHAPTERS]
    assert re.findall(r'<section id="(\w+)"', nasty_page) == [chapter.name for chapter in CHAPTERS]


def test_a_chapter_without_data_is_left_out(tmp_path):
    page = rendered(*analysed(stages=("decode", "spec", "errors")), tmp_path, manifest={})
    for name in ("sinks", "environment"):
        assert f'id="{name}"' not in page
        assert f'href="#{name}"' not in page


def test_nothing_from_outside_is_markup(nasty_page):
    page = Page(nasty_page)
    assert page.tags.count("script") == page.tags.count("style") == 1
    assert "<script>alert" not in nasty_page
    assert any("<script>alert" in text for text in page.texts)
    assert "big<model>" not in nasty_page
    assert "big&lt;model&gt;" in nasty_page
    assert not [name for name, _ in page.attributes if name.startswith("on")]


def test_the_page_needs_nothing_else(nasty_page):
    page = Page(nasty_page)
    links = [value for name, value in page.attributes if name in ("href", "src", "xlink:href") and value]
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)
    assert {f"#{i}" for i in page.ids} >= {link for link in links if link.startswith("#")}
    assert not re.search(r"url\((?!#|&quot;)", nasty_page.replace("url('data:", ""))


def test_the_answer_stands_first(nasty_page):
    body = nasty_page[nasty_page.index("<body>") :]
    order = [body.index(f'id="{name}"') for name in ("answer", "claims", "chain", "prompts", "method", "limits")]
    assert order == sorted(order)
    answer = body[: order[1]]
    assert answer.count('class="link ') == 5
    assert "Of the chain" in answer
    assert "At gamma 4, stop=none, temperature=0.7 " in answer
    assert "is constant (10)" in answer


def test_dark_mode_print_and_narrow_screens_are_provided_for(nasty_page):
    for rule in ("prefers-color-scheme: dark", "@media print", "(max-width", 'name="viewport"'):
        assert rule in nasty_page
    inline = nasty_page[nasty_page.index("<body>") :]
    assert "var(--ink)" in inline


def test_what_the_template_did_is_told(nasty_page):
    assert nasty_page.count("the template adds a system text") == len(CATEGORIES)


def test_a_token_of_the_answer_says_where_its_query_looks(nasty_page):
    masses = ", ".join(rf"{kind}: 0\.\d\d" for kind in ("position 0", "template", "content", "answer"))
    assert re.search(rf'data-d="[0-9.]+ bits[^"]*; attention to {masses}', nasty_page)


def test_candidates_are_told_by_their_texts(nasty_page):
    assert re.search(r'data-d="[0-9.]+ bits, draft [0-9.]+ bits[^"]*\n?&#10;0\.50 ·the', nasty_page)


def test_fifty_prompts_stay_light(tmp_path):
    """The figures come to about half a megabyte on top."""
    page = rendered(*analysed(Plan(n_content_tokens=160)), tmp_path)
    assert len(page.encode()) < 4_000_000
    assert page.count('class="prompt"') == 50


@pytest.mark.parametrize("kept", [(), ("prefill",), ("decode",), ("spec",)])
def test_a_study_with_missing_stages_has_a_page(tmp_path, kept):
    page = rendered(*analysed(stages=kept), tmp_path, manifest={})
    assert Page(page).open == []
    assert "not run" in page
    assert ("nan" in Page(page).texts) is False


def test_a_disk_that_refuses_leaves_the_earlier_page_whole(tmp_path, monkeypatch):
    earlier = rendered(*analysed(), tmp_path)

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot write .*report\.html: No space left on device"):
        rendered(*analysed(stages=("prefill",)), tmp_path)
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == earlier
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_failures_are_told(tmp_path):
    result, tables = analysed()
    errors = pd.DataFrame([["decode", "code-01", "memory", "out of <b>"]], columns=tables["errors"].columns)
    page = rendered(result, {**tables, "errors": errors}, tmp_path)
    assert "1 prompt failed (1 in decode): code-01." in page
    assert "memory: out of &lt;b&gt;" in page


def test_a_passed_self_check_is_told_in_detail(nasty_page):
    assert 'role="alert"' not in nasty_page
    section = nasty_page[nasty_page.index('<section id="self_checks"') :]
    section = section[: section.index("</section>")]
    for words in ("greedy", ">passed<", "<td>equal 32</td>"):
        assert words in section


def test_a_correlation_that_turns_round_within_categories_is_told(tmp_path):
    tables = make_tables(Plan(n_per_category=8, n_answer_tokens=12))
    entropy = tables["decode_runs"].groupby("prompt_id")["mean_entropy_bits"].mean()
    prompts = tables["prefill_prompts"]
    own = entropy.loc[prompts["prompt_id"]].to_numpy()
    between = pd.Series(own).groupby(prompts["category"].to_numpy()).transform("mean").to_numpy()
    # Categories of higher entropy are healthier; inside a category it is the other way round.
    prompts["context_health_soft"] = 5 + between - 0.5 * (own - between)
    page = rendered(analyze(tables, FAST), tables, tmp_path)
    assert "paradox: soft context health and mean entropy of the answer (spearman)" in page
    assert "No correlation changes sign" not in page


def test_many_prompts_are_cut_and_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(prompts, "PROMPT_SECTIONS", 3)
    page = rendered(*analysed(), tmp_path)
    assert page.count('class="prompt"') == 3
    assert "12 more prompts" in page


def test_verdicts_are_counted_over_all_claims(nasty_page):
    section = nasty_page[nasty_page.index('<section id="claims"') : nasty_page.index('<section id="chain"')]
    n_claims, counts = re.search(r"Of (\d+) claims: ([^.]*)\.", section).groups()
    assert sum(map(int, re.findall(r"\d+", counts))) == int(n_claims) == section.count('class="badge ')
