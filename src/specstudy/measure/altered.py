"""The models as a version of a prompt wants them: with a position hidden, or as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np

from specstudy.measure.decode import GenerationSettings
from specstudy.models.load import Pair
from specstudy.models.without_position import without_position
from specstudy.prompts.prompt import Prompt, RenderedPrompt
from specstudy.seeds import uniforms


@contextmanager
def altered(pair: Pair, rendered: RenderedPrompt, seed: int) -> Iterator[None]:
    """Within this block the pair answers as the prompt's version says; afterwards as before. `seed` draws a position
    that is hidden at random.

    Raises ValueError for a prompt that has no position to hide.
    """
    version = rendered.prompt.version
    with ExitStack() as stack:
        if version and version.hidden:
            position = hidden_position(rendered, seed)
            for model in (pair.verifier, pair.draft) if version.hidden_from_both else (pair.verifier,):
                stack.enter_context(without_position(model.module, position))
        yield


def generation_settings(settings: GenerationSettings, prompt: Prompt) -> GenerationSettings:
    """The settings with the temperatures of the prompt's version, where it has any."""
    version = prompt.version
    if version is None or version.temperature is None:
        return settings
    warp = replace(settings.warp, temperature=version.temperature)
    return replace(settings, warp=warp, draft_temperature=version.draft_temperature)


def hidden_position(rendered: RenderedPrompt, seed: int) -> int:
    """The position that the version hides: the first, the last of the prompt, or a content position drawn by `seed`
    for the original prompt."""
    version = rendered.prompt.version
    assert version is not None
    if version.hidden == "first":
        return 0
    if version.hidden == "boundary":
        return len(rendered.positions) - 1
    content = np.flatnonzero([not position.is_structural for position in rendered.positions])
    if not len(content):
        raise ValueError("there is no content position to hide")
    return int(uniforms(seed, "hidden position", version.original_id).choice(content))
