"""One look for all figures: colours, markers, fonts, number formats and how a figure is saved."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import font_manager
from matplotlib.figure import Figure

from specstudy.analysis.measures import MEASURES
from specstudy.tables.files import atomic_file

INK, MUTED, GRID, PAPER = "#1f2328", "#656d76", "#d8dee4", "#ffffff"
NONE = "\N{EN DASH}"
DARK, LIGHT = "#111418", "#fefefe"
BLUE, ORANGE, GREEN, VERMILLION = "#0072b2", "#e69f00", "#009e73", "#d55e00"
PINK, SKY, BROWN, GREY = "#cc79a7", "#56b4e9", "#8c6d31", "#8c959f"
# On the page these are named after what they are, so that they can follow its light or dark mode: the blue is too dark
# to be read on black.
THEMED = {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "paper", BLUE: "blue"}
_COLORS = {"blue": BLUE, "orange": ORANGE, "green": GREEN, "vermillion": VERMILLION, "pink": PINK, "sky": SKY}
SERIES = ((BLUE, "o"), (VERMILLION, "D"), (GREEN, "s"), (ORANGE, "^"), (PINK, "v"), (SKY, "P"))
"""Colours and markers of things that are told apart by their order alone."""


def look(measure: str) -> tuple[str, str]:
    """Colour and marker of a measure, the same in every figure."""
    color, marker = MEASURES[measure].look.split()
    return _COLORS[color], marker


@dataclass(frozen=True)
class Mark:
    """How a category is drawn."""

    color: str
    marker: str


# Okabe and Ito's colours, told apart in every common kind of colour blindness; the marker says it once more.
_KNOWN = {
    "factual": Mark(BLUE, "o"),
    "code": Mark(GREEN, "s"),
    "math": Mark(ORANGE, "^"),
    "creative": Mark(PINK, "D"),
    "ambiguous": Mark(VERMILLION, "v"),
}
_OTHERS = (Mark(SKY, "P"), Mark(BROWN, "X"), Mark(GREY, "h"), Mark(INK, "*"))


def category_marks(categories: Iterable[str]) -> dict[str, Mark]:
    """The mark of each category, sorted by name; unknown categories share what is left, in turn."""
    names = sorted(set(categories))
    others = [name for name in names if name not in _KNOWN]
    return {name: _KNOWN.get(name) or _OTHERS[others.index(name) % len(_OTHERS)] for name in names}


@contextmanager
def figure_style() -> Iterator[None]:
    """Matplotlib settings of this project, undone at the end of the block."""
    settings: Any = {
        "font.family": _installed("DejaVu Sans", "Noto Sans", "Noto Sans CJK JP", "Arial Unicode MS", "Hiragino Sans"),
        "font.size": 9,
        # Tokens and categories may hold "$" and "_", which are not mathematics here.
        "text.parse_math": False,
        "text.color": INK,
        "axes.edgecolor": MUTED,
        "axes.labelcolor": INK,
        "axes.titlesize": 9.5,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "grid.linewidth": 0.6,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "legend.frameon": False,
        "figure.facecolor": PAPER,
        "axes.facecolor": "none",
        # Text stays text in SVG: small, selectable, and drawn with the reader's own fonts where ours lack a script.
        "svg.fonttype": "none",
        "svg.hashsalt": "specstudy",
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # nobody's matplotlibrc changes a figure, or asks for LaTeX
        matplotlib.rcParams.update(settings)
        yield


def _installed(*families: str) -> list[str]:
    available = {font.name for font in font_manager.fontManager.ttflist}
    return [family for family in families if family in available] or ["sans-serif"]


def new_figure(width_in: float = 6.4, height_in: float = 4.2) -> Figure:
    """An empty figure outside pyplot's global state."""
    return Figure(figsize=(width_in, height_in), layout="constrained")


def save(figure: Figure, directory: Path, name: str) -> list[Path]:
    """Writes `name`.png and `name`.svg, each whole or not at all; the same figure gives the same bytes.

    Raises UserError where they cannot be written.
    """
    png, svg = directory / f"{name}.png", directory / f"{name}.svg"
    with warnings.catch_warnings():
        # Tokens may be of any script; a missing glyph is drawn as a box and is no news.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support .* natively")
        with atomic_file(png) as file:
            figure.savefig(file, format="png", dpi=150, metadata={"Software": None})
        with atomic_file(svg) as file:
            figure.savefig(file, format="svg", metadata={"Date": None, "Creator": "specstudy"})
    return [png, svg]


# More marks than this are drawn as an image inside the SVG: as shapes they would make the page slow.
MARKS_AS_SHAPES = 1000


def themed(color: str) -> str:
    """A colour as the page writes it."""
    return f"var(--{THEMED[color]})" if color in THEMED else color


def wrapped(text: str, width: int = 34) -> str:
    """A label broken into lines of at most `width` characters where words allow."""
    return "\n".join(textwrap.wrap(text, width, break_long_words=False))


def visible_token(token: str) -> str:
    """A token on one line, with its white space and control characters to be seen."""
    return readable_token(token).replace("\n", "").replace("\t", "⇥").replace(" ", "·")


# Invisible, but letters and emoji are joined and kept apart by them.
_JOINERS = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"


def readable_token(token: str) -> str:
    """A token in running text: line breaks marked and kept, control characters (of direction too) made visible."""
    shown = token.replace("\r", "").replace("\n", "↵\n")
    return "".join(c if c.isprintable() or c in f"\n\t{_JOINERS}" else "\N{REPLACEMENT CHARACTER}" for c in shown)


def number(value: float | None, digits: int = 2) -> str:
    """A number for people; a dash for none."""
    if value is None or value != value:
        return NONE
    rounded = round(value, digits) + 0.0  # adding zero takes the sign from a negative zero
    return f"{rounded:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def interval(low: float | None, high: float | None, digits: int = 2) -> str:
    """An interval for people; empty for none."""
    return "" if low is None or high is None or low != low else f"[{number(low, digits)}, {number(high, digits)}]"


def percent(confidence: float) -> str:
    """The coverage of an interval for people, with as many digits as it has."""
    return f"{confidence * 100:g} %"


def bars_note(confidence: float) -> str:
    """What the bars of a figure are."""
    return f"bars: {percent(confidence)} intervals over prompts"


def p_value(value: float | None) -> str:
    """A p-value for people."""
    if value is None or value != value:
        return NONE
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
