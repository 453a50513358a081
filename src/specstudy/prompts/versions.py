"""The sets of prompt versions that intervene on one link of the chain.

In every set exactly one version of each prompt has no control: the unaltered one, or the one with a clean context.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import product

from specstudy.prompts.poisoned import Context, Count, versions_of
from specstudy.prompts.prompt import CONTENT, STRUCTURAL, Prompt, Version

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


def with_lowered_keys(prompts: Sequence[Prompt], lowered_by: Sequence[float]) -> list[Prompt]:
    """Each prompt answered with the score of one key of every head lowered, in the verifier or in both models: of the
    structural key that the head attends to most; the control lowers a content key drawn at random by as much.

    The dose is the place in `lowered_by`, smallest first, from 1.
    """
    made = []
    for prompt in prompts:
        made.append(_version(prompt, Version(prompt.prompt_id, "unaltered")))
        for (dose, by), both in product(enumerate(sorted(lowered_by), start=1), (False, True)):
            ending = "_in_both" if both else ""
            for key in (CONTENT, STRUCTURAL):
                compared = "unaltered" if key == CONTENT else f"{CONTENT}_lowered{ending}{dose}"
                described = Version(
                    prompt.prompt_id,
                    f"{key}_lowered{ending}",
                    dose,
                    _id(prompt, compared),
                    lowered=key,
                    lowered_by=by,
                    lowered_in_both=both,
                )
                made.append(_version(prompt, described))
    return made


def at_temperatures(prompts: Sequence[Prompt], temperatures: Sequence[float], usual: float) -> list[Prompt]:
    """Each prompt answered at other temperatures of the verifier, the draft following or staying at the `usual` one.

    The dose is the place among the temperatures above the usual one, from 1, or among those below it, from -1; the
    usual one itself is that of the unaltered version.
    """
    above = sorted(t for t in temperatures if t > usual)
    below = sorted((t for t in temperatures if t < usual), reverse=True)
    doses = [*enumerate(above, start=1), *((-place, t) for place, t in enumerate(below, start=1))]
    made = []
    for prompt in prompts:
        made.append(_version(prompt, Version(prompt.prompt_id, "unaltered")))
        for dose, temperature in sorted(doses):
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
