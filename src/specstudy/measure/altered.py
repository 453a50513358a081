"""The models as a version of a prompt wants them: with a position hidden, with keys scored lower, or as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from specstudy.measure.decode import GenerationSettings
from specstudy.measure.lowered import lowered_models, lowered_positions, random_content_position
from specstudy.models.load import Pair
from specstudy.models.lowered_scores import lowered_scores
from specstudy.models.without_position import without_position
from specstudy.prompts.prompt import Prompt, RenderedPrompt


@contextmanager
def altered(pair: Pair, rendered: RenderedPrompt, seed: int) -> Iterator[None]:
    """Within this block the pair answers as the prompt's version says; afterwards as before. `seed` draws a position
    that is hidden, or scored lower, at random.

    Raises ValueError for a prompt that has no such position.
    """
    version = rendered.prompt.version
    with ExitStack() as stack:
        if version and version.hidden:
            position = hidden_position(rendered, seed)
            for model in (pair.verifier, pair.draft) if version.hidden_from_both else (pair.verifier,):
                stack.enter_context(without_position(model.module, position))
        if version and version.lowered_by is not None:
            for model in lowered_models(pair, rendered).values():
                positions = lowered_positions(model, rendered, seed)
                stack.enter_context(lowered_scores(model.module, positions, version.lowered_by))
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
    return random_content_position(rendered, seed, "hidden position")
