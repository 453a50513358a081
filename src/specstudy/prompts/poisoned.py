"""The same question over a context made worse in one way, step by step, beside a control of the same length.

The context of a prompt is the sentences that its answer needs. A version adds text between them, and what is added at a
dose has the same number of tokens in every kind, so that kinds differ in what the text says and not in how long it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from specstudy.errors import UserError
from specstudy.seeds import derived_seed

CLEAN = "clean"
CONTROL = "related"
POISONS = ("irrelevant", "contradiction", "shuffled", "scrambled", "repeated")
UNMOVED = "unmoved"
MOVED = "moved"
PARTS = ("needed", "related", "contradictions")
FILLERS = ("and so on", "as I said before", "you know", "again")

Count = Callable[[str], int]


@dataclass(frozen=True)
class Context:
    """Sentences for one prompt: those that the answer needs, others of the same subject, and contradictions."""

    needed: tuple[str, ...]
    related: tuple[str, ...]
    contradictions: tuple[str, ...]


@dataclass(frozen=True)
class Version:
    """A prompt's text with a context, and which version it is to be compared with (None: it is the clean one).

    `kind`: `clean` (the needed sentences alone), `related` (the control: other true sentences of the subject),
    `irrelevant`, `contradiction`, `repeated` (text of that sort added), `shuffled` (the control with `dose` + 1 needed
    sentences in each other's place), `scrambled` (the control with the words of `dose` needed sentences in random
    order), `unmoved` and `moved` (the needed sentences before, or `dose` passages into, passages about other subjects).
    A dose adds to the one below it.
    """

    kind: str
    dose: int
    text: str
    control: str | None

    @property
    def name(self) -> str:
        return self.kind if self.dose == 0 else f"{self.kind}{self.dose}"


def read_contexts(path: Path) -> dict[str, Context]:
    """Contexts by prompt_id from a YAML file with one sentence a line. Raises UserError in one line."""
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path} cannot be read as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(given, dict):
        raise UserError(f"{path} must map each prompt_id to its {', '.join(PARTS)}")
    return {str(prompt_id): _context(path, prompt_id, parts) for prompt_id, parts in given.items()}


def _context(path: Path, prompt_id: object, parts: object) -> Context:
    if not isinstance(parts, dict) or set(parts) != set(PARTS) or not all(isinstance(t, str) for t in parts.values()):
        raise UserError(f"{path}: {prompt_id} must have the texts {', '.join(PARTS)}, one sentence a line")
    sentences = {name: tuple(line.strip() for line in parts[name].splitlines() if line.strip()) for name in PARTS}
    if not all(sentences.values()):
        raise UserError(f"{path}: {prompt_id} has a part without a sentence")
    return Context(**sentences)


def check_contexts(prompt_ids: Iterable[str], contexts: Mapping[str, Context], n_doses: int) -> None:
    """Raise UserError for the first prompt that has no context, or too small a one for so many doses."""
    for prompt_id in prompt_ids:
        if prompt_id not in contexts:
            raise UserError(
                f"there is no context for the prompt {prompt_id!r} among the {len(contexts)} of prompts.contexts; "
                "prompts.versions=poisoned needs one for each prompt"
            )
        own = contexts[prompt_id]
        if n_doses > min(len(own.contradictions), len(own.needed) - 1, len(own.related)):
            raise UserError(
                f"{n_doses} doses are more than the sentences that the context of {prompt_id!r} has to offer"
            )
        if n_doses >= len(contexts):
            raise UserError(
                f"{n_doses} doses take the contexts of as many other prompts; prompts.contexts has {len(contexts) - 1}"
            )


def versions_of(
    prompt_id: str,
    question: str,
    contexts: Mapping[str, Context],
    foreign: Sequence[str],
    n_doses: int,
    seed: int,
    count: Count,
) -> list[Version]:
    """All versions of one prompt at doses 1 to `n_doses`.

    `foreign` names the prompts whose needed sentences are irrelevant here; `count` gives the tokens of a text. Lengths
    at a dose are matched to the contradictions', which cannot be cut; a text that no cut makes equal is the nearest.
    The controls' own control is the clean version, so that what they change by being longer is seen too. Raises
    UserError where the prompt has no context, or not as many sentences as there are doses.
    """
    check_contexts([prompt_id], contexts, n_doses)
    own = contexts[prompt_id]
    rng = np.random.Generator(np.random.Philox(derived_seed(seed, "poisoned", prompt_id)))
    passages = [contexts[name].needed for name in rng.permutation(sorted(foreign)).tolist()]
    gaps = rng.permutation(len(own.needed) + 1)[:n_doses].tolist()
    hit = rng.permutation(len(own.needed)).tolist()
    scrambled = [" ".join(rng.permutation(sentence.split()).tolist()) for sentence in own.needed]
    trading_places = rng.permutation(len(own.needed)).tolist()

    def text(added: Sequence[str], needed: Sequence[str] = own.needed) -> str:
        return _text(_inserted(needed, added, gaps), question)

    lengths = [count(text(own.contradictions[:dose])) for dose in range(1, n_doses + 1)]
    related = _matched(rng.permutation(list(own.related)).tolist(), lengths, lambda added: count(text(added)))
    irrelevant = _matched([*itertools.chain(*passages)], lengths, lambda added: count(text(added)))
    repeated = _matched([" ".join([filler] * 99) for filler in FILLERS], lengths, lambda added: count(text(added)))
    versions = [Version(CLEAN, 0, text([]), None)]
    for dose in range(1, n_doses + 1):
        in_random_words = [scrambled[i] if i in hit[:dose] else sentence for i, sentence in enumerate(own.needed)]
        texts = {
            "irrelevant": text(irrelevant[:dose]),
            "contradiction": text(own.contradictions[:dose]),
            "shuffled": text(related[:dose], _rotated(own.needed, trading_places[: dose + 1])),
            "scrambled": text(related[:dose], in_random_words),
            "repeated": text(repeated[:dose]),
        }
        control = Version(CONTROL, dose, text(related[:dose]), CLEAN)
        versions += [control, *(Version(kind, dose, poisoned, control.name) for kind, poisoned in texts.items())]
    return [*versions, *_moved(question, own, passages[:n_doses])]


def _moved(question: str, own: Context, passages: Sequence[tuple[str, ...]]) -> Iterator[Version]:
    """The needed sentences before passages about other subjects, then behind one of them, two of them, ..."""
    for dose in range(len(passages) + 1):
        sentences = itertools.chain(*passages[:dose], own.needed, *passages[dose:])
        kind, control = (MOVED, UNMOVED) if dose else (UNMOVED, CLEAN)
        yield Version(kind, dose, _text(list(sentences), question), control)


def _rotated(sentences: Sequence[str], places: Sequence[int]) -> list[str]:
    """Each of these places holds the sentence of the next one, the last that of the first."""
    following = dict(zip(places, [*places[1:], places[0]], strict=True))
    return [sentences[following.get(i, i)] for i in range(len(sentences))]


def _text(sentences: Sequence[str], question: str) -> str:
    return " ".join(sentences) + "\n\n" + question


def _inserted(needed: Sequence[str], added: Sequence[str], gaps: Sequence[int]) -> list[str]:
    """Each added text before the needed sentence that its gap numbers, or after the last."""
    at = dict(zip(gaps, added, strict=False))
    with_added = [[at[i], sentence] if i in at else [sentence] for i, sentence in enumerate(needed)]
    return [*itertools.chain(*with_added), *([at[len(needed)]] if len(needed) in at else [])]


def _matched(sources: Sequence[str], lengths: Sequence[int], count: Callable[[Sequence[str]], int]) -> list[str]:
    """One text a dose, made of `sources`, so that `count` of the first d texts is lengths[d - 1], or as near as can be.

    A whole source is preferred to one that was cut, and two of them in a row are cut where one is too short.
    """
    chosen: list[str] = []
    left = list(sources)
    for length in lengths:

        def distance(text: str, length: int = length) -> int:
            return abs(count([*chosen, text]) - length)

        used = next((i for i, source in enumerate(left) if distance(source) == 0), None)
        if used is None:
            cuts = [
                _cut(f"{first} {second}", length, lambda text: count([*chosen, text]))
                for first, second in zip(left, left[1:] + left[:1], strict=True)
            ]
            used = min(range(len(cuts)), key=lambda i: distance(cuts[i]))
            chosen.append(cuts[used])
        else:
            chosen.append(left[used])
        left.pop(used)
    return chosen


def _cut(text: str, length: int, count: Callable[[str], int]) -> str:
    """The first words of a text, closed by a full stop, with which `count` reaches `length`."""
    words = text.split()

    def first(n_words: int) -> str:
        return " ".join(words[:n_words]).rstrip(".,;:") + "."

    low, high = 1, len(words)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if count(first(middle)) >= length else (middle + 1, high)
    return min(first(low), first(max(1, low - 1)), key=lambda cut: abs(count(cut) - length))
