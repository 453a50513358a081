"""Which models can take tokens back: told by the configuration, before any weights load.

After a rejected token a model goes back to the state before it. Keys and values of attention can be dropped; a running
state (Mamba, linear attention, convolutions) has already mixed the token in, and would go on silently wrong.
"""

from __future__ import annotations

import inspect

from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, DynamicCache, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import (
    DummyLayer,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
)

from specstudy.errors import UserError
from specstudy.models.sources import ModelSource

# Caches of layers whose rollback is tested here against uncached passes; a dummy is that of a layer that keeps nothing.
TESTED_LAYERS = (DynamicLayer, DynamicSlidingWindowLayer, DummyLayer)
ATTENTION_TYPES = ("full_attention", "sliding_attention", "chunked_attention")
# What a cache takes its windows from, whether or not the model's own code does.
WINDOWS = ("layer_types", "sliding_window", "attention_chunk_size")


def refuse_unless_tokens_can_be_taken_back(source: ModelSource) -> None:
    """Raise UserError, naming the type of layer, for a model that cannot go back behind a rejected token."""
    config = source.config()
    if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:  # a class that comes with the weights is known once they are loaded
        refuse_class(source, MODEL_FOR_CAUSAL_LM_MAPPING[type(config)], config)
    _refuse_layers(source, config)


def refuse_class(source: ModelSource, model_class: type[PreTrainedModel], config: PreTrainedConfig) -> None:
    """Raise UserError for a class that says of itself that it keeps a running state, or that takes no cache."""
    if model_class._is_stateful:
        raise _running_state(source, config)
    if "cache" not in inspect.signature(model_class.forward).parameters:
        raise source.refused(f"{model_class.__name__} takes no cache of keys and values; choose another model")


def _refuse_layers(source: ModelSource, config: PreTrainedConfig) -> None:
    try:
        layers = DynamicCache(config=config).layers
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise source.refused(f"it needs a cache of its own kind ({error!r})") from error
    if any(isinstance(layer, LinearAttentionCacheLayerMixin) for layer in layers):
        raise _running_state(source, config)
    if untested := sorted({type(layer).__name__ for layer in layers if type(layer) not in TESTED_LAYERS}):
        raise source.refused(
            f"taking tokens back from a {untested[0]} is not tested here; choose a model with full or sliding-window "
            "attention"
        )
    windows = [layer.sliding_window for layer in layers if isinstance(layer, DynamicSlidingWindowLayer)]
    if windows:
        _refuse_foreign_windows(source, config)
    if 1 in windows:
        raise source.refused("its sliding window is 1, and the library's cache of such a layer keeps everything")


def _refuse_foreign_windows(source: ModelSource, config: PreTrainedConfig) -> None:
    """Refuse windows that the architecture does not know: its cache would drop keys that it goes on looking at."""
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:  # code that comes with the weights may know others
        return
    text = config.get_text_config(decoder=True)
    known = type(text)()
    if foreign := [name for name in WINDOWS if getattr(text, name, None) and not hasattr(known, name)]:
        raise source.refused(
            f"its config.json states {foreign[0]}, which {config.model_type} models do not have; "
            "model_type is wrong, or take it out"
        )


def _running_state(source: ModelSource, config: PreTrainedConfig) -> UserError:
    names = getattr(config.get_text_config(decoder=True), "layer_types", None) or []
    kind = next((f" of type {name}" for name in names if name not in ATTENTION_TYPES), "")
    return source.refused(
        f"{config.model_type} layers{kind} keep a running state that cannot be taken back after a rejected token; "
        "choose a model with attention layers only"
    )
