"""The sets of prompt versions that intervene on one link of the chain.

In every set exactly one version of each prompt has no control: the unaltered one, or the one with a clean context.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from specstudy.prompts.poisoned import Context, Count, versions_of
from specstudy.prompts.prompt import Prompt, Version

SEPARATOR = "~"
HIDDEN_POSITIONS = ("first", "boundary")
RANDOM_POSITION = "random"


def poisoned(
    prompts: Sequence[Prompt],
    contexts: Mapping[str, Context],
    category: Mapping[str, str],
    n_doses: int,
    seed: int,
    count: Count,
) -> list[Prompt]:
    """Each prompt over contexts made worse in several ways, with controls of the same number of tokens.

    `category` gives the category of every prompt that has a context, chosen or not, so that a prompt's versions do not
    depend on which others are run. What is irrelevant to a prompt are the contexts of prompts in other categories (of
    all others where those are fewer than doses). Raises UserError where a prompt has no context.
    """
    made = []
    for prompt in prompts:
        others = [name for name in contexts if name != prompt.prompt_id]
        foreign = [name for name in others if category.get(name) != prompt.category]
        foreign = foreign if len(foreign) >= n_doses else others
        for version in versions_of(prompt.prompt_id, prompt.text, contexts, foreign, n_doses, seed, count):
            control = None if version.control is None else _id(prompt, version.control)
            described = Version(prompt.prompt_id, version.kind, version.dose, control)
            made.append(_version(prompt, described, version.text))
    return made


def with_hidden_positions(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Each prompt answered with position 0, or the last of the prompt, hidden from all later queries of the verifier,
    or of both models. The control hides a content position drawn at random."""
    made = []
    for prompt in prompts:
        made.append(_version(prompt, Version(prompt.prompt_id, "unaltered")))
        for both in (False, True):
            ending = "_from_both" if both else ""
            control = f"hidden_{RANDOM_POSITION}{ending}"
            for position in (RANDOM_POSITION, *HIDDEN_POSITIONS):
                kind = f"hidden_{position}{ending}"
                compared = "unaltered" if position == RANDOM_POSITION else control
                described = Version(
                    prompt.prompt_id, kind, 0, _id(prompt, compared), hidden=position, hidden_from_both=both
                )
                made.append(_version(prompt, described))
    return made


def at_temperatures(prompts: Sequence[Prompt], temperatures: Sequence[float], usual: float) -> list[Prompt]:
    """Each prompt answered at other temperatures of the verifier, the draft following or staying at the `usual` one.

    The dose is the place in `temperatures`, from 1.
    """
    made = []
    for prompt in prompts:
        made.append(_version(prompt, Version(prompt.prompt_id, "unaltered")))
        for dose, temperature in enumerate(temperatures, start=1):
            for kind, draft in (("temperature", None), ("temperature_of_verifier", usual)):
                described = Version(
                    prompt.prompt_id,
                    kind,
                    dose,
                    _id(prompt, "unaltered"),
                    temperature=temperature,
                    draft_temperature=draft,
                )
                made.append(_version(prompt, described))
    return made


def _version(prompt: Prompt, version: Version, text: str | None = None) -> Prompt:
    changed = prompt.text if text is None else text
    return dataclasses.replace(prompt, prompt_id=_id(prompt, version.name), text=changed, version=version)


def _id(prompt: Prompt, name: str) -> str:
    return f"{prompt.prompt_id}{SEPARATOR}{name}"
