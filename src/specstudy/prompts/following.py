"""Where in a rendered prompt each message stands, by following the template's own text through it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specstudy.prompts.prompt import Message


@dataclass(frozen=True)
class Shown:
    """Message `number` at characters [start, stop) of a rendered text, and how it was changed (None: not at all)."""

    number: int
    start: int
    stop: int
    change: str | None


def follow(skeleton: Sequence[str], messages: Sequence[Message], text: str) -> list[Shown]:
    """Where the contents stand: the skeleton with them in place must be exactly the text.

    A template may strip or change the white space of a content, and leave earlier thinking out; the way that changes
    the first contents least is taken. Raises ValueError if there is none.
    """
    # Where the next content may begin -> how the one before was shown, likeliest first; one dictionary a content.
    ways: list[dict[int, Shown]] = []
    starts = [len(skeleton[0])] if text.startswith(skeleton[0]) else []
    for number, literal in zip(map(int, skeleton[1::2]), skeleton[2::2], strict=True):
        reached: dict[int, Shown] = {}
        for start in starts:
            for stop, change in _ways_to_show(messages[number], text, start):
                if text.startswith(literal, stop):
                    reached.setdefault(stop + len(literal), Shown(number, start, stop, change))
        ways.append(reached)
        starts = list(reached)
    end, found = len(text), []
    for reached in reversed(ways):
        if end not in reached:
            raise ValueError("the chat template changes what was written in a way that cannot be followed")
        found.append(reached[end])
        end = found[-1].start
    return found[::-1]


def _ways_to_show(message: Message, text: str, start: int) -> Iterator[tuple[int, str | None]]:
    """Every (end, change) with which this content may stand at `start`."""
    contents: dict[str, str | None] = {message.content: None}
    if message.role == "assistant" and "</think>" in message.content:
        contents[message.content.rpartition("</think>")[2]] = "thinking of an earlier answer left out"
    for content, change in contents.items():
        for shown in _strippings(content):
            if text.startswith(shown, start):
                stripped = f"white space around the {message.role} text left out"
                yield start + len(shown), change or (None if shown == content else stripped)
        if (stop := _end_of_words(content, text, start)) is not None:
            yield stop, change or f"white space in the {message.role} text changed"


def _strippings(content: str) -> list[str]:
    """The content as it is, and without the white space, or the line breaks, at its ends."""
    starts = (content, content.lstrip(), content.lstrip("\n"))
    return list(dict.fromkeys(s for start in starts for s in (start, start.rstrip(), start.rstrip("\n"))))


def _end_of_words(content: str, text: str, start: int) -> int | None:
    """Where the words of a content end that stand at `start`, whatever white space is between them."""
    for word in content.split():
        while text[start : start + 1].isspace():
            start += 1
        if not text.startswith(word, start):
            return None
        start += len(word)
    return start
