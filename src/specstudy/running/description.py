"""What a reader of the manifest needs before any result: machine, models, prompts, seeds, code, configuration."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specstudy.analysis.declarations import declarations_sha256
from specstudy.config import StudyConfig, to_mapping
from specstudy.prompts import Prompt
from specstudy.tables import manifest

if TYPE_CHECKING:
    from specstudy.models.load import LanguageModel, Pair


def describe_run(
    config: StudyConfig,
    pair: Pair,
    code: Mapping[str, str],
    prompts: Sequence[Prompt],
    run_dir: Path,
) -> None:
    """Write these sections of the manifest; `code` has a hash of the source that each stage's numbers depend on."""
    import torch

    from specstudy.measure.sinks import describe_attention

    device, dtype = str(pair.verifier.device), str(pair.verifier.dtype).removeprefix("torch.")
    prompt_set = hashlib.sha256(repr([asdict(p) for p in prompts]).encode()).hexdigest()
    sections: dict[str, dict[str, Any]] = {
        "execution": {"device": device, "dtype": dtype, "threads": torch.get_num_threads()},
        "models": {
            "verifier": _model_entry(pair.verifier, pair, config),
            "draft": {**_model_entry(pair.draft, pair, config), "distillation": _distillation(config.models.draft)},
        },
        # The hash that stood when the first of the data was measured stays.
        "claims": {"sha256_when_measured": declarations_sha256(), **manifest.read(run_dir).get("claims", {})},
        "prompts": {"name": config.prompts.name, "n_prompts": len(prompts), "sha256": prompt_set},
        "seeds": {"seed": config.seed, "analysis": config.analysis.seed},
        "code": dict(code),
        "config": to_mapping(config),
    }
    if {"prefill", "decode"} & code.keys():
        # Refuses an architecture that cannot be measured before any long work.
        sections["models"]["verifier"]["attention"] = describe_attention(pair.verifier)
    for name, content in sections.items():
        manifest.update(run_dir, name, content)


def _distillation(draft: str) -> dict[str, int | None] | None:
    """How a shallow draft was trained; None for another kind of draft."""
    from specstudy.models.shallow import distillation, is_shallow_draft
    from specstudy.models.sources import existing_path

    directory = existing_path(draft)
    return distillation(directory) if directory and is_shallow_draft(directory) else None


def _model_entry(model: LanguageModel, pair: Pair, config: StudyConfig) -> dict[str, Any]:
    return {
        "name": model.name,
        "note": model.note,
        "sha256": model.fingerprint,
        "attention_implementation": model.attention,
        "linear_layers": model.linear_layers,
        **({"gguf": model.conversion} if model.conversion else {}),
        "dimensions": asdict(model.dimensions),
        "generation": {
            "temperature": {"decode": config.decode.temperature, "speculate": list(config.spec.temperature)},
            "top_p": {"decode": config.decode.top_p, "speculate": list(config.spec.top_p)},
            "top_k": None,
            "repetition_penalty": None,
            "eos_token_ids": list(pair.eos_ids),
        },
        "generation_settings_in_its_files_not_used": model.stored_generation_settings,
    }
