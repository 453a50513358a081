"""The page as a reader meets it: rendered by a real browser. Skipped where there is no Chromium."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from synthetic import Plan, make_tables

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.study import analyze
from specstudy.report import html
from specstudy.report.figures import draw_all

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on PATH")

HOSTILE = '</style></script><script>window.broken = true</script><img src=x onerror="window.broken = true">'
HEBREW = ("שלום", " עולם")
LONG = "x" * 4000
OVERRIDE = "\N{RIGHT-TO-LEFT OVERRIDE}abc\x00\x1b[31m"
PROMPT = "code-01"
CONTRAST = 4.5  # WCAG 2.2, level AA, for text


def _hostile_tables():
    tables = make_tables(Plan(n_per_category=2, n_answer_tokens=24, gammas=(2, 4)))
    for name, order in (("prefill_tokens", "position"), ("decode_tokens", "step"), ("spec_tokens", "index")):
        frame = tables[name]
        first = frame.index[(frame["prompt_id"] == PROMPT) & (frame[order] >= (4 if name == "prefill_tokens" else 0))]
        frame.loc[first[:6], "token"] = [*HEBREW, "\n", HOSTILE, LONG, OVERRIDE]
    return tables


@pytest.fixture(scope="module")
def tables():
    return _hostile_tables()


@pytest.fixture(scope="module")
def address(tables, tmp_path_factory) -> str:
    directory: Path = tmp_path_factory.mktemp("page")
    result = analyze(tables, AnalysisSettings(bootstrap_samples=50))
    draw_all(result, tables, directory / "figures")
    failed = {"speculate": {"passed": False, "greedy": {"passed": False, "n_equal": 3, "n_tokens": 32}}}
    file = directory / "report.html"
    html.render(result, tables, {"self_checks": failed}, directory / "figures", file)
    return file.as_uri()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        # Without a sandbox, because containers run tests as root; the page is this project's own.
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, address):
    """A function that opens the page at a width, as a phone or a desk, in light or dark; faults fail the test."""
    contexts, faults = [], []

    def open_page(width: int = 1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text))
        page.on("request", lambda request: faults.append(request.url) if request.url != address else None)
        page.goto(address)
        page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []


def _answer_tokens(page):
    return page.locator(f"#prompt-{PROMPT} p.tokens").nth(1).locator("[data-d]")


def _expected_candidates(tables, step: int) -> list[str]:
    rows = tables["decode_tokens"]
    row = rows[(rows["prompt_id"] == PROMPT) & (rows["step"] == step) & (rows["repetition"] == 0)].iloc[0]
    return [f"{p:.2f} {text}".strip() for text, p in zip(row["top_tokens"], row["top_probs"], strict=True)]


def _shown_candidates(page) -> list[str]:
    lines = page.locator("#tip .candidate").all_inner_texts()
    return [line.replace("·", " ").replace("↵", "\n").replace("⇥", "\t").strip() for line in lines]


def test_hover_shows_the_five_likeliest_tokens(opened, tables):
    page = opened()
    _answer_tokens(page).nth(7).hover()
    assert len(_shown_candidates(page)) == 5
    assert _shown_candidates(page) == _expected_candidates(tables, 7)
    assert re.match(r"[0-9.]+ bits, draft [0-9.]+ bits, expected acceptance [0-9.]+", page.locator("#tip").inner_text())
    page.locator("h1").hover()
    assert page.locator("#tip").is_hidden()


def test_the_keyboard_shows_what_the_mouse_shows(opened, tables):
    page = opened()
    page.locator(f"#prompt-{PROMPT} > summary").focus()
    page.keyboard.press("Tab")
    assert "position 0" in page.locator("#tip").inner_text()
    page.keyboard.press("Tab")
    assert _shown_candidates(page) == _expected_candidates(tables, 0)
    for _ in range(7):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert _shown_candidates(page) == _expected_candidates(tables, 6)
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    assert _shown_candidates(page) == _expected_candidates(tables, 23)
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()
    page.keyboard.press("Tab")
    assert re.match("accepted|rejected", page.locator("#tip").inner_text())


def test_the_first_stop_of_the_keyboard_skips_to_the_answer(opened):
    page = opened()
    page.keyboard.press("Tab")
    link = page.locator(":focus")
    assert link.inner_text() == "Skip to the answer"
    assert link.bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.url.endswith("#answer")


def test_a_tap_shows_what_the_mouse_shows(opened, tables):
    page = opened(390, has_touch=True, is_mobile=True)
    _answer_tokens(page).nth(9).tap()
    assert _shown_candidates(page) == _expected_candidates(tables, 9)
    box = page.locator("#tip").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    page.locator("#prompts-title").tap()
    assert page.locator("#tip").is_hidden()


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_reaches_beyond_the_page(opened, width):
    page = opened(width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    outside = """[...document.querySelectorAll("main *")].filter((e) => !e.closest(".wide, .drawing")
        && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80))"""
    assert page.evaluate(outside) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_the_page(opened, scheme):
    page = opened(color_scheme=scheme)
    paper = _luminance(page, "body", "backgroundColor")
    assert (paper < 0.05) == (scheme == "dark")
    for selector in (
        "body",
        ".small",
        "nav a",
        ".badge",
        ".rounds .untested",
        ".text .s",
        "figcaption",
        ".drawing text",
    ):
        ink = _luminance(page, selector, "fill" if selector == ".drawing text" else "color")
        assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) >= CONTRAST, selector


def _luminance(page, selector: str, attribute: str) -> float:
    """Relative luminance of a computed sRGB colour, 0 to 1."""
    color = page.locator(selector).first.evaluate(f"(element) => getComputedStyle(element).{attribute}")
    channels = [int(value) / 255 for value in re.findall(r"\d+", color)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_on_paper_nothing_is_cut(opened):
    page = opened(700, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.locator("nav").is_hidden()
    assert _luminance(page, "body", "backgroundColor") == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= 700
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_what_a_prompt_holds_is_only_text(opened):
    page = opened()
    assert page.evaluate("window.broken") is None
    texts = _answer_tokens(page).all_inner_texts()
    assert texts[3].endswith(HOSTILE)
    assert texts[4] == LONG
    assert texts[5] == "\N{REPLACEMENT CHARACTER}abc\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}[31m"


def test_hebrew_runs_from_right_to_left_and_english_does_not(opened):
    page = opened()
    tokens = _answer_tokens(page)
    left = [tokens.nth(step).bounding_box()["x"] for step in range(2)]
    assert left[0] > left[1]
    prompt = page.locator(f"#prompt-{PROMPT} p.tokens").first.locator("[data-d]")
    assert prompt.nth(0).bounding_box()["x"] < prompt.nth(1).bounding_box()["x"]


def test_a_failed_self_check_is_the_first_thing_said(opened):
    page = opened()
    alarm = page.get_by_role("alert")
    assert "SELF-CHECK FAILED in speculate" in alarm.inner_text()
    assert alarm.bounding_box()["y"] < page.locator("h1").bounding_box()["y"]
    alarm.get_by_role("link").click()
    assert "FAILED" in page.locator("#self_checks").inner_text()
    assert "equal 3, tokens 32" in page.locator("#self_checks").inner_text()


def test_a_link_to_a_prompt_opens_it(opened, address):
    page = opened()
    part = page.locator(f"#prompt-{PROMPT}")
    part.evaluate("(element) => { element.open = false; }")
    page.evaluate(f"location.hash = 'prompt-{PROMPT}'")
    part.locator("h3").first.wait_for(state="visible")
