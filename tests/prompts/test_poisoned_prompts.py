"""Versions of a prompt over a context made worse: what each adds, that lengths match, and that a seed decides all."""

from collections import Counter
from pathlib import Path

import pytest

from specstudy.config import PROJECT_ROOT
from specstudy.errors import UserError
from specstudy.prompts.poisoned import Context, Version, read_contexts, versions_of
from specstudy.prompts.reading import read_prompts

QUESTION = "Why is the sky blue?"
CONTEXTS = {
    "sky": Context(
        needed=("Air scatters short waves most.", "Blue light has short waves.", "Sunlight holds every colour."),
        related=("The sky is dark on the Moon.", "Clouds look white.", "Sunsets are red.", "Mars has a pink sky."),
        contradictions=("Air scatters only red light, never blue.", "Sunlight is green."),
    ),
    "cake": Context(("Cakes need eggs.", "Ovens should be hot before.", "Sugar browns."), ("a", "b"), ("c", "d")),
    "boat": Context(("Boats float.", "Wind pushes on the sails of most boats.", "Keels help."), ("a", "b"), ("c", "d")),
}


def n_words(text: str) -> int:
    return len(text.split())


def made(seed: int = 0, n_doses: int = 2) -> dict[str, Version]:
    versions = versions_of("sky", QUESTION, CONTEXTS, ["cake", "boat"], n_doses, seed, n_words)
    names = [version.name for version in versions]
    assert len(set(names)) == len(names)
    return dict(zip(names, versions, strict=True))


def test_every_kind_at_every_dose_with_its_control() -> None:
    controls = {name: version.control for name, version in made().items()}
    assert controls == {
        "clean": None,
        "related1": "clean",
        **dict.fromkeys(["irrelevant1", "contradiction1", "shuffled1", "scrambled1", "repeated1"], "related1"),
        "related2": "clean",
        **dict.fromkeys(["irrelevant2", "contradiction2", "shuffled2", "scrambled2", "repeated2"], "related2"),
        "unmoved": "clean",
        "moved1": "unmoved",
        "moved2": "unmoved",
    }


@pytest.mark.parametrize("seed", range(10))
def test_a_poison_is_as_long_as_its_control(seed: int) -> None:
    versions = made(seed)
    for version in versions.values():
        if version.control and version.control != "clean":
            assert n_words(version.text) == n_words(versions[version.control].text), version.name


@pytest.mark.parametrize("seed", range(10))
def test_a_version_adds_what_its_kind_says_and_keeps_the_rest(seed: int) -> None:
    versions = made(seed)
    needed = CONTEXTS["sky"].needed
    assert versions["clean"].text == " ".join(needed) + "\n\n" + QUESTION
    for name, version in versions.items():
        assert version.text.endswith("\n\n" + QUESTION)
        if version.kind not in ("shuffled", "scrambled"):
            places = [version.text.index(sentence) for sentence in needed]
            assert places == sorted(places), f"{name} changes the order of the needed sentences"
    assert CONTEXTS["sky"].contradictions[0] in versions["contradiction1"].text
    assert all(sentence in versions["contradiction2"].text for sentence in CONTEXTS["sky"].contradictions)
    assert n_words(versions["related1"].text) - n_words(versions["clean"].text) == 7
    assert n_words(versions["related2"].text) - n_words(versions["clean"].text) == 10


@pytest.mark.parametrize("seed", range(10))
def test_sentences_trade_places_two_and_then_one_more_a_dose(seed: int) -> None:
    versions = made(seed)
    needed = CONTEXTS["sky"].needed
    left = {}
    for dose in (1, 2):
        control, shuffled = versions[f"related{dose}"].text, versions[f"shuffled{dose}"].text
        # What stands at a needed sentence's place in the control, each needed sentence being replaced by its number.
        orders = []
        for text in (control, shuffled):
            for number, sentence in enumerate(needed):
                text = text.replace(sentence, f"<{number}>")
            orders.append(text)
        assert Counter(orders[0]) == Counter(orders[1])
        found, usual = ([int(c) for c in text if c.isdigit()] for text in (orders[1], orders[0]))
        assert usual == [0, 1, 2]
        left[dose] = [n for n, other in zip(usual, found, strict=True) if n == other]
        assert len(left[dose]) == len(needed) - dose - 1
    assert set(left[2]) <= set(left[1]), "a dose adds to the one below it"


@pytest.mark.parametrize("seed", range(10))
def test_scrambling_keeps_the_words_and_hits_one_sentence_a_dose(seed: int) -> None:
    versions = made(seed)
    for dose in (1, 2):
        control, scrambled = versions[f"related{dose}"].text, versions[f"scrambled{dose}"].text
        assert Counter(control.split()) == Counter(scrambled.split())
        changed = sum(sentence not in scrambled for sentence in CONTEXTS["sky"].needed)
        assert changed <= dose
    untouched = [s for s in CONTEXTS["sky"].needed if s in versions["scrambled2"].text]
    assert all(sentence in versions["scrambled1"].text for sentence in untouched), "a dose adds to the one below it"


def test_scrambling_changes_the_order_of_words() -> None:
    assert any(made(seed)["scrambled1"].text != made(seed)["related1"].text for seed in range(3))


def test_the_needed_passage_moves_from_the_beginning_to_the_end() -> None:
    versions = made()
    starts = [versions[name].text.index(CONTEXTS["sky"].needed[0]) for name in ("unmoved", "moved1", "moved2")]
    assert starts[0] == 0
    assert 0 < starts[1] < starts[2]
    assert versions["moved2"].text.endswith(" ".join(CONTEXTS["sky"].needed) + "\n\n" + QUESTION)
    assert len({n_words(versions[name].text) for name in ("unmoved", "moved1", "moved2")}) == 1


def test_only_the_seed_and_the_prompt_decide() -> None:
    assert made(3) == made(3)
    assert made(3) != made(4)
    assert made(3)["related1"].text == made(3, n_doses=1)["related1"].text


def test_errors_name_the_prompt() -> None:
    with pytest.raises(UserError, match="no context for the prompt 'sea'"):
        versions_of("sea", QUESTION, CONTEXTS, ["cake"], 1, 0, n_words)
    with pytest.raises(UserError, match=r"3 doses .*'sky'"):
        made(n_doses=3)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("- a\n", "must map each prompt_id"),
        ("a: {needed: x, related: y}\n", "needed, related, contradictions"),
        ("a: {needed: x, related: [y], contradictions: z}\n", "a must have the texts"),
        ("a: {needed: x, related: '', contradictions: z}\n", "a has a part without a sentence"),
        ("a: {", "cannot be read as YAML"),
    ],
)
def test_a_faulty_file_is_one_line(tmp_path: Path, written: str, said: str) -> None:
    path = tmp_path / "contexts.yaml"
    path.write_text(written)
    with pytest.raises(UserError, match=said) as caught:
        read_contexts(path)
    assert "\n" not in str(caught.value)


def test_every_study_prompt_has_a_context_of_its_own() -> None:
    contexts = read_contexts(PROJECT_ROOT / "data/prompts/contexts.yaml")
    prompts = read_prompts(PROJECT_ROOT / "data/prompts/study50.jsonl")
    assert set(contexts) == {prompt.prompt_id for prompt in prompts}
    sentences = [s for c in contexts.values() for s in (*c.needed, *c.related, *c.contradictions)]
    assert len(set(sentences)) == len(sentences)
    assert {(len(c.needed), len(c.related), len(c.contradictions)) for c in contexts.values()} == {(4, 6, 3)}
