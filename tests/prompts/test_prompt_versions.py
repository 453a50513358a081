"""Sets of prompt versions: ids, originals and controls; what each imposes; seeds shared with the original."""

from __future__ import annotations

from collections import Counter

import pytest

from specstudy.prompts.poisoned import POISONS, Context
from specstudy.prompts.prompt import Message, Prompt
from specstudy.prompts.versions import at_temperatures, poisoned, with_hidden_positions, with_lowered_keys

PROMPTS = [
    Prompt("sky", "physics", "Why is the sky blue?", system="Be brief.", history=(Message("user", "Hello."),)),
    Prompt("sea", "physics", "Why is the sea salty?"),
    Prompt("cake", "kitchen", "How does one bake a cake?"),
]
CATEGORIES = {prompt.prompt_id: prompt.category for prompt in PROMPTS} | {"boat": "travel", "soup": "kitchen"}
DOSES = 3


def context(name: str) -> Context:
    def sentences(kind: str, n: int) -> tuple[str, ...]:
        return tuple(f"The {kind} {name} number {i} has several words." for i in range(n))

    return Context(sentences("needed", 4), sentences("related", 6), sentences("contrary", 3))


CONTEXTS = {name: context(name) for name in CATEGORIES}


def n_words(text: str) -> int:
    return len(text.split())


def poisoned_versions(prompts: list[Prompt] = PROMPTS, doses: int = DOSES) -> list[Prompt]:
    return poisoned(prompts, CONTEXTS, CATEGORIES, doses, 0, n_words)


SETS = {
    "poisoned": poisoned_versions(),
    "hidden": with_hidden_positions(PROMPTS),
    "lowered": with_lowered_keys(PROMPTS, (2.0, 1.0)),
    "temperatures": at_temperatures(PROMPTS, (0.3, 1.3, 0.5, 0.7, 1.0, 2.0), 0.7),
}


@pytest.mark.parametrize("made", SETS.values(), ids=SETS.keys())
def test_every_version_leads_by_its_controls_to_the_one_unaltered_version_of_its_original(made: list[Prompt]) -> None:
    by_id = {prompt.prompt_id: prompt for prompt in made}
    assert len(by_id) == len(made)
    roots = []
    for prompt in made:
        assert prompt.version is not None
        assert prompt.prompt_id == f"{prompt.version.original_id}~{prompt.version.name}"
        current, seen = prompt, {prompt.prompt_id}
        while current.version and current.version.control_id:
            current = by_id[current.version.control_id]
            assert current.prompt_id not in seen
            assert current.version is not None
            assert current.version.original_id == prompt.version.original_id
            seen.add(current.prompt_id)
        roots.append(current.prompt_id)
        assert prompt.seed_id == prompt.version.original_id
    assert len(set(roots)) == len(PROMPTS), "what the ordinary analysis sees is one version a prompt"


@pytest.mark.parametrize("made", SETS.values(), ids=SETS.keys())
def test_what_a_version_does_not_speak_of_stays(made: list[Prompt]) -> None:
    originals = {prompt.prompt_id: prompt for prompt in PROMPTS}
    for prompt in made:
        assert prompt.version is not None
        original = originals[prompt.version.original_id]
        assert (prompt.category, prompt.system, prompt.history) == (
            original.category,
            original.system,
            original.history,
        )
        if prompt.version.alters_the_models:
            assert prompt.text == original.text
        assert prompt.text.endswith(original.text)


def test_poisons_are_compared_with_the_control_of_their_dose_and_length() -> None:
    by_id = {prompt.prompt_id: prompt for prompt in SETS["poisoned"]}
    kinds: Counter[tuple[str, int]] = Counter()
    for prompt in SETS["poisoned"]:
        version = prompt.version
        assert version is not None
        kinds[version.kind, version.dose] += 1
        name = version.original_id
        if version.kind in POISONS:
            assert version.control_id == f"{name}~related{version.dose}"
        elif version.kind == "moved":
            assert version.control_id == f"{name}~unmoved"
        else:
            assert version.control_id == (None if version.kind == "clean" else f"{name}~clean")
        if version.control_id and version.kind not in ("related", "unmoved"):
            assert n_words(prompt.text) == n_words(by_id[version.control_id].text)
    assert set(kinds.values()) == {len(PROMPTS)}
    assert {dose for kind, dose in kinds if kind == "irrelevant"} == {1, 2, 3}


def test_what_is_irrelevant_comes_from_other_categories_and_not_from_who_else_is_run() -> None:
    among = {prompt.prompt_id: prompt.text for prompt in SETS["poisoned"]}
    alone = {prompt.prompt_id: prompt.text for prompt in poisoned_versions([PROMPTS[0]])}
    assert alone == {name: text for name, text in among.items() if name.startswith("sky~")}
    irrelevant = [text for name, text in among.items() if name.startswith(("sky~irrelevant", "sky~moved"))]
    assert irrelevant
    assert not any(" sea number" in text for text in irrelevant), "the sea is physics, too"
    # Where too few are of another category, any other will do.
    one_category = dict.fromkeys(CONTEXTS, "one")
    assert poisoned([PROMPTS[0]], CONTEXTS, one_category, DOSES, 0, n_words)


def test_hidden_positions_are_compared_with_a_random_one_hidden_from_the_same_models() -> None:
    told = {p.version.name: p.version for p in SETS["hidden"] if p.version and p.version.original_id == "sky"}
    assert {name: v.control_id for name, v in told.items()} == {
        "unaltered": None,
        "hidden_random": "sky~unaltered",
        "hidden_first": "sky~hidden_random",
        "hidden_boundary": "sky~hidden_random",
        "hidden_random_from_both": "sky~unaltered",
        "hidden_first_from_both": "sky~hidden_random_from_both",
        "hidden_boundary_from_both": "sky~hidden_random_from_both",
    }
    for name, version in told.items():
        assert version.hidden_from_both == name.endswith("_from_both")
        assert version.hidden == (None if name == "unaltered" else name.split("_")[1])


def test_lowered_keys_are_compared_with_a_content_key_lowered_as_much_in_the_same_models() -> None:
    told = {p.version.name: p.version for p in SETS["lowered"] if p.version and p.version.original_id == "sky"}
    assert {name: v.control_id for name, v in told.items()} == {
        "unaltered": None,
        **{f"content_lowered{both}{dose}": "sky~unaltered" for both in ("", "_in_both") for dose in (1, 2)},
        **{
            f"structural_lowered{both}{dose}": f"sky~content_lowered{both}{dose}"
            for both in ("", "_in_both")
            for dose in (1, 2)
        },
    }
    for name, version in told.items():
        assert version.lowered_in_both == ("in_both" in name)
        assert version.lowered == (None if name == "unaltered" else name.split("_")[0])
        assert version.lowered_by == {0: None, 1: 1.0, 2: 2.0}[version.dose]
        assert version.alters_the_models == (name != "unaltered")


DOSES_OF_TEMPERATURES = {-2: 0.3, -1: 0.5, 1: 1.0, 2: 1.3, 3: 2.0}


def test_a_temperature_is_imposed_on_both_models_or_on_the_verifier_alone() -> None:
    told = {p.version.name: p.version for p in SETS["temperatures"] if p.version and p.version.original_id == "sky"}
    assert {name: (v.temperature, v.draft_temperature, v.dose) for name, v in told.items()} == {
        "unaltered": (None, None, 0),
        **{f"temperature{i}": (t, None, i) for i, t in DOSES_OF_TEMPERATURES.items()},
        **{f"temperature_of_verifier{i}": (t, 0.7, i) for i, t in DOSES_OF_TEMPERATURES.items()},
    }
    assert {v.control_id for name, v in told.items() if name != "unaltered"} == {"sky~unaltered"}
