"""Distinct user prompts on which the verifier is sampled to distil the small draft model."""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources

import yaml

CATEGORIES = ("factual", "creative", "code", "math", "ambiguous")
MAXIMUM_PROMPTS = 40_000
MINIMUM_WORDS = 8
LENGTH_NAMES = ("short", "medium", "long")
LENGTH_WEIGHTS = (45, 35, 20)
# A redraw happens only after a repeated or too short text; this many in a row means the material is used up.
MAXIMUM_REDRAWS = 500

_MATERIAL = yaml.safe_load(resources.files("specstudy.distill").joinpath("material.yaml").read_bytes())
_FILLERS: dict[str, list[str]] = _MATERIAL["fillers"]
_PASSAGES: dict[str, list[str]] = _MATERIAL["passages"]
_PATTERNS: dict[str, list[str]] = _MATERIAL["patterns"]
_SLOT = re.compile(r"\{(\^?)([a-z_]+)(\d?)(?::(\d+)-(\d+))?\}")


@dataclass(frozen=True)
class DistillPrompt:
    """One user prompt and the category it belongs to."""

    category: str
    text: str


class _Composer:
    """Fills the slots of patterns and remembers the numbered ones, so that a prompt stays consistent."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.remembered: dict[str, str] = {}

    def choice(self, options: Sequence[str]) -> str:
        """Draw one pattern and fill it."""
        return self.fill(self.rng.choice(options))

    def fill(self, pattern: str) -> str:
        """Replace every slot of the pattern."""
        return _SLOT.sub(self._replacement, pattern)

    def _replacement(self, match: re.Match[str]) -> str:
        capital, name, number, low, high = match.groups()
        if low is not None:
            return self._number(name, int(low), int(high))
        filler = self._filler(name, number)
        return filler[0].upper() + filler[1:] if capital else filler

    def _number(self, name: str, low: int, high: int) -> str:
        if name == "n":
            return str(self.rng.randint(low, high))
        if name not in self.remembered:
            self.remembered[name] = str(self.rng.randint(low, high))
        return self.remembered[name]

    def _filler(self, name: str, number: str) -> str:
        key = name + number
        if number and key in self.remembered:
            return self.remembered[key]
        # Two different slots of one kind never hold the same filler: "Anna and Anna" would be absurd.
        taken = {value for slot, value in self.remembered.items() if slot.rstrip("0123456789") == name}
        filler = self.rng.choice([option for option in _FILLERS[name] if option not in taken])
        self.remembered[key] = filler
        return filler


Make = Callable[[_Composer], str]


def distillation_prompts(n: int, seed: int) -> list[DistillPrompt]:
    """Return ``n`` distinct prompts, the categories in turn; a smaller ``n`` gives a prefix of the list."""
    if not 0 <= n <= MAXIMUM_PROMPTS:
        raise ValueError(f"cannot make {n} distinct prompts: the number must be from 0 to {MAXIMUM_PROMPTS}")
    rng = random.Random(seed)
    seen: set[str] = set()
    prompts: list[DistillPrompt] = []
    for index in range(n):
        category = CATEGORIES[index % len(CATEGORIES)]
        text = _new_text(rng, category, seen)
        seen.add(text)
        prompts.append(DistillPrompt(category, text))
    return prompts


def _new_text(rng: random.Random, category: str, seen: set[str]) -> str:
    """Draw a text of the category that was not drawn before, of a length drawn first."""
    length = rng.choices(LENGTH_NAMES, LENGTH_WEIGHTS)[0]
    make = _MAKERS[category, length]
    for _ in range(MAXIMUM_REDRAWS):
        text = make(_Composer(rng))
        if text not in seen and len(text.split()) >= MINIMUM_WORDS:
            return text
    raise ValueError(f"the material for {length} {category} prompts gives no more distinct ones")


def _either_order(composer: _Composer, request: str, body: str) -> str:
    """Put the request before or after the text it is about."""
    parts = [request, body]
    # Requests that announce the text have to come first.
    if not re.search(r"\b(below|following|here is)\b", request, re.IGNORECASE) and composer.rng.random() < 0.5:
        parts.reverse()
    return "\n\n".join(parts)


def _sentences(composer: _Composer, openings: str, others: str, low: int, high: int) -> list[str]:
    """Return an opening and then sentences in random order until a drawn number of words is reached."""
    target = composer.rng.randint(low, high)
    filled = [composer.choice(_PATTERNS[openings])]
    for pattern in composer.rng.sample(_PATTERNS[others], len(_PATTERNS[others])):
        if sum(len(sentence.split()) for sentence in filled) >= target:
            break
        filled.append(composer.fill(pattern))
    return filled


def _passage(composer: _Composer, patterns: Sequence[str], low: int, high: int) -> str:
    """Return sentences in their written order, the first always, with others left out to fit the length."""
    filled = [composer.fill(pattern) for pattern in patterns]
    target = composer.rng.randint(low, high)
    removable = composer.rng.sample(range(1, len(filled)), len(filled) - 1)
    while removable and sum(len(sentence.split()) for sentence in filled) > target:
        filled[removable.pop()] = ""
    return " ".join(sentence for sentence in filled if sentence)


def _pattern(name: str) -> Make:
    """Fills one complete pattern."""
    return lambda composer: composer.choice(_PATTERNS[name])


def _either(share: float, first: Make, second: Make) -> Make:
    """The first in this share of the prompts, else the second."""
    return lambda composer: (first if composer.rng.random() < share else second)(composer)


def _passage_task(composer: _Composer, low: int, high: int) -> str:
    """Return a request about a passage."""
    genre = composer.rng.choice(sorted(_PASSAGES))
    passage = _passage(composer, _PASSAGES[genre], low, high)
    request = composer.fill(composer.rng.choice(_PATTERNS["passage_requests"]).replace("{genre}", genre))
    return _either_order(composer, request, passage)


def _product_task(composer: _Composer) -> str:
    """Return a request about a product table and a passage that belongs to a shop."""
    request = composer.choice(_PATTERNS["table_requests"])
    notes = _passage(composer, _PATTERNS["table_notes"], 40, 120)
    lines = ["product | colour | price in euros | in stock | sold last month | rating"]
    for device in composer.rng.sample(_FILLERS["device"], composer.rng.randint(7, 12)):
        numbers = composer.fill("{colour} | {n:9-240} | {n:0-80} | {n:2-150} | {n:1-4}.{n:0-9}")
        lines.append(f"{device} | {numbers}")
    return "\n\n".join([request, "\n".join(lines), notes])


def _story_task(composer: _Composer, low: int, high: int) -> str:
    """Return a request about the opening of a story."""
    opening = _sentences(composer, "story_openings", "story", low, high)
    return _either_order(composer, composer.choice(_PATTERNS["story_requests"]), " ".join(opening))


def _listing_task(composer: _Composer, count: int) -> str:
    """Return a request about one or more code listings."""
    # Every listing of a prompt gets names of its own.
    skeletons = composer.rng.sample(_PATTERNS["listings"], count)
    listings = [f"```\n{_Composer(composer.rng).fill(skeleton)}\n```" for skeleton in skeletons]
    request = composer.choice(_PATTERNS["code_requests"])
    if count > 1:
        request = composer.choice(_PATTERNS["code_part_introductions"]) + " For each of them: " + request
    return _either_order(composer, request, "\n\n".join(listings))


def _data_task(composer: _Composer) -> str:
    """Return a request to process a table of records by program."""
    request = composer.choice(_PATTERNS["data_requests"])
    field = composer.choice(_FILLERS["field"])
    lines = [f"id,name,city,{field},date"]
    for number in range(composer.rng.randint(12, 24)):
        date = f"2023-{composer.rng.randint(1, 12):02}-{composer.rng.randint(1, 28):02}"
        name = composer.rng.choice(_FILLERS["person"])
        city = composer.rng.choice(_FILLERS["city"])
        lines.append(f"{number + 1},{name},{city},{composer.rng.randint(3, 990)},{date}")
    return _either_order(composer, request, "\n".join(lines))


def _math_long(composer: _Composer) -> str:
    """Return a problem in several parts about a table of numbers."""
    story = " ".join(_sentences(composer, "math_openings", "math_story", 80, 150))
    lines = ["month | customers | income in euros | costs in euros | hours worked"]
    for month in _FILLERS["month"][: composer.rng.randint(5, 12)]:
        lines.append(composer.fill(f"{month} | {{n:40-900}} | {{n:900-9000}} | {{n:500-7000}} | {{n:60-480}}"))
    questions = composer.rng.sample(_PATTERNS["math_questions"], composer.rng.randint(3, 6))
    parts = [f"({letter}) {composer.fill(question)}" for letter, question in zip("abcdef", questions, strict=False)]
    ending = composer.choice(_FILLERS["mathformat"])
    return "\n\n".join([story, "\n".join(lines), "\n".join(parts), ending])


def _thread(composer: _Composer, low: int, high: int) -> str:
    """Return a thread of short messages between two people."""
    speakers = [composer.fill("{person8}"), composer.fill("{person9}")]
    messages = _sentences(composer, "message_openings", "messages", low, high)
    return "\n".join(f"{composer.rng.choice(speakers)}: {message}" for message in messages)


def _ambiguous_task(composer: _Composer, low: int, high: int) -> str:
    """Return an open request about a situation or a thread of messages."""
    if composer.rng.random() < 0.45:
        body = _thread(composer, low, high)
    else:
        body = " ".join(_sentences(composer, "ambiguous_openings", "ambiguous_context", low, high))
    return _either_order(composer, composer.choice(_PATTERNS["ambiguous_requests"]), body)


_MAKERS: dict[tuple[str, str], Make] = {
    ("factual", "short"): _pattern("factual_short"),
    ("factual", "medium"): partial(_passage_task, low=50, high=105),
    ("factual", "long"): _either(0.2, _product_task, partial(_passage_task, low=170, high=290)),
    ("creative", "short"): _pattern("creative_short"),
    ("creative", "medium"): _either(0.4, _pattern("creative_medium"), partial(_story_task, low=50, high=100)),
    ("creative", "long"): partial(_story_task, low=165, high=260),
    ("code", "short"): _pattern("code_short"),
    ("code", "medium"): _either(0.4, _pattern("code_medium"), partial(_listing_task, count=1)),
    ("code", "long"): _either(0.3, _data_task, partial(_listing_task, count=3)),
    ("math", "short"): _pattern("math_short"),
    ("math", "medium"): _pattern("math_medium"),
    ("math", "long"): _math_long,
    ("ambiguous", "short"): _pattern("ambiguous_short"),
    ("ambiguous", "medium"): partial(_ambiguous_task, low=50, high=105),
    ("ambiguous", "long"): partial(_ambiguous_task, low=165, high=270),
}
