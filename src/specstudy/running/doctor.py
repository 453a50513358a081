"""Whether a study can run here: device, precision, model files, tokenizers, memory; and about how long it would take.

Weights are loaded for the last alone, once it is known that they fit.
"""

from __future__ import annotations

import platform
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from specstudy.config import PROJECT_ROOT, ModelsConfig, StudyConfig
from specstudy.errors import UserError
from specstudy.formulas import Dimensions, flops_per_token
from specstudy.report.console import report_console, report_table
from specstudy.running.duration import duration_words, seconds_of, timed_pace
from specstudy.running.studies import STAGES
from specstudy.running.threads import set_threads
from specstudy.running.workflow import (
    check_proposers,
    choose_template,
    chosen_prompts,
    prompt_versions,
    render_all,
)

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

    from specstudy.models.describe import Description
    from specstudy.models.load import PairSources
    from specstudy.models.memory import MemoryEstimate

GIB = 2**30
COMFORTABLE_SHARE = 0.9
Row = tuple[str, ...]


def doctor(config: StudyConfig) -> int:
    """Report on machine, pair and prompts. 0: a study can run; 1: it needs too much memory; 2: models are missing."""
    import transformers

    from specstudy.models.describe import describe_pair
    from specstudy.models.device import choose_device, choose_dtype

    transformers.logging.set_verbosity_error()
    device = choose_device(config.execution.device)
    dtype = choose_dtype(config.execution.dtype, device)
    _print("This machine", _machine(config, device, dtype))
    sources = _find(config.models)
    if sources is None:
        return 2
    check_proposers(config, sources)
    choose_template(config, sources)
    pair = describe_pair(sources)
    _print("The pair", _pair(config.models, pair, len(sources.tokenizer)), header=["", "verifier", "draft"])
    for note in sources.notes:
        print(f"note: {note}")
    status = _memory(config, pair, _longest_prompt(config, sources.tokenizer, pair), device, dtype)
    if status == 0:
        say_duration(config, sources, device, dtype)
    return status


def say_duration(config: StudyConfig, sources: PairSources, device: torch.device, dtype: torch.dtype) -> None:
    """Load the pair, time a few of its steps, and say about how long a study of it takes."""
    from specstudy.models.load import load_found_pair

    pair = load_found_pair(sources, device, dtype)
    set_threads(config, pair, store=None)
    rendered, _ = render_all(prompt_versions(config, chosen_prompts(config)[0], pair), pair, config)
    units = [(stage.name, unit) for stage in STAGES for prompt in rendered for unit in stage.units(config, prompt)]
    pace = timed_pace(pair)
    words = duration_words(seconds_of(units, config, pace), pace)
    report_console().print(Text(f"With nothing measured yet, {words}; the analysis comes on top."))


def _machine(config: StudyConfig, device: torch.device, dtype: torch.dtype) -> list[Row]:
    import torch
    import transformers

    from specstudy.models.device import available_devices, device_memory, usable_cores

    asked, n_cores, memory = config.execution, usable_cores(), device_memory(device)
    free = "" if memory.free_bytes is None else f", {_gib(memory.free_bytes)} of it free now"
    return [
        ("python", f"{platform.python_version()} on {platform.platform()}"),
        ("torch", torch.__version__),
        ("transformers", transformers.__version__),
        ("devices", ", ".join(available_devices())),
        ("device", f"{device} ({'the first of these' if asked.device == 'auto' else 'execution.device'})"),
        ("dtype", f"{_name(dtype)} ({_why(device, dtype) if asked.dtype == 'auto' else 'execution.dtype'})"),
        ("threads", f"{asked.threads or _tried(device, n_cores)} on {n_cores} cores"),
        ("memory", f"{_gib(memory.total_bytes)} on {device}{free}"),
    ]


def _tried(device: torch.device, n_cores: int) -> str:
    """The threads of a study that is not told how many."""
    return f"1 or {n_cores}, as a trial finds," if device.type == "cpu" and n_cores > 1 else str(n_cores)


def _why(device: torch.device, dtype: torch.dtype) -> str:
    """Why `auto` is this precision here."""
    if device.type == "cpu":
        in_hardware = _name(dtype) == "bfloat16"
        return "this CPU multiplies it in hardware" if in_hardware else "this CPU has no hardware for bfloat16"
    return "as in mayankpallai 2026" if device.type == "mps" else "the range of float32 in half the memory"


def _find(models: ModelsConfig) -> PairSources | None:
    """The pair, or a line for each model that is not here. Nothing is fetched."""
    from specstudy.models.load import find_pair
    from specstudy.models.shallow import is_shallow_draft
    from specstudy.models.sources import existing_path, find_source
    from specstudy.models.unrunnable import refuse_unless_runnable

    faults = []
    for key, name in (("models.verifier", models.verifier), ("models.draft", models.draft)):
        path = existing_path(name)
        if key == "models.draft" and path and is_shallow_draft(path):
            continue
        try:
            refuse_unless_runnable(find_source(name, key, models.trust_remote_code, fetch=False))
        except UserError as fault:
            faults.append(f"error: {fault}")
    print(*faults, sep="\n", end="\n" if faults else "", file=sys.stderr)
    return None if faults else find_pair(models.verifier, models.draft, models.trust_remote_code)


def _pair(models: ModelsConfig, pair: tuple[Description, Description], n_tokens: int) -> list[Row]:
    dimensions = [model.size.dimensions for model in pair]
    flops = [flops_per_token(d) for d in dimensions]
    return [
        ("model", models.verifier, models.draft),
        ("files", *(_files(model) for model in pair)),
        ("size", *(f"{sum(file.stat().st_size for file in model.files) / 1e6:,.0f} MB" for model in pair)),
        ("parameters", *(f"{model.size.n_parameters / 1e6:,.1f} million" for model in pair)),
        ("FLOPs a token", f"{flops[0]:,.0f}", f"{flops[1]:,.0f} (c = {flops[1] / flops[0]:.3f})"),
        ("layers", *(_layers(model) for model in pair)),
        *([("experts", *map(_experts, dimensions))] if any(d.n_experts for d in dimensions) else []),
        ("context", *map(_context, pair)),
        ("tokens", f"{n_tokens:,}", "the same"),
        *_conversions(pair),
    ]


def _conversions(pair: tuple[Description, Description]) -> list[Row]:
    """What the headers of GGUF files were read as; nothing for a pair of directories."""
    said = [model.conversion or {} for model in pair]
    return [
        (f"GGUF: {key.replace('_', ' ')}", *(_short(one[key]) if one else "" for one in said))
        for key in max(said, key=len)
        if any(one.get(key) is not None for one in said)
    ]


def _short(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_short(part)}" for key, part in value.items())
    if isinstance(value, list):
        longest = 8
        return " ".join(map(_short, value)) if len(value) <= longest else f"{len(value)} from {value[0]} to {value[-1]}"
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)


def _files(model: Description) -> str:
    place = model.files[0] if len(model.files) == 1 else model.files[0].parent
    return str(place.relative_to(PROJECT_ROOT) if place.is_relative_to(PROJECT_ROOT) else place)


def _layers(model: Description) -> str:
    windows = Counter(window for window in model.sliding_windows if window)
    limited = [f"{n} see only the last {window} tokens" for window, n in windows.items()]
    return f"{len(model.sliding_windows)}, {', '.join(limited) or 'all see the whole text'}"


def _context(model: Description) -> str:
    from specstudy.models.rotary import ENDS_THERE

    why = f", {ENDS_THERE}" if model.usable_context == model.constant_frequencies is not None else ""
    return f"{model.usable_context or 'not stated, in'} tokens{why}"


def _experts(d: Dimensions) -> str:
    return f"{d.n_experts} in {d.n_expert_layers} layers, {d.n_active_experts} a token" if d.n_experts else "none"


def _longest_prompt(
    config: StudyConfig, tokenizer: PreTrainedTokenizerBase, pair: tuple[Description, Description]
) -> int:
    """Tokens of the longest prompt that can be measured, after a line on the prompts and one on those that cannot."""
    from specstudy.prompts import render

    context = min(filter(None, (model.usable_context for model in pair)), default=None)
    lengths, faults = [], []
    prompts, notes = chosen_prompts(config)
    for prompt in prompts:
        try:
            n_tokens = len(render(prompt, tokenizer, config.prompts.thinking).positions)
        except ValueError as fault:
            faults.append(f"{prompt.prompt_id} ({fault})")
            continue
        if context and n_tokens + config.decode.max_new_tokens > context:
            faults.append(f"{prompt.prompt_id} ({n_tokens} tokens)")
        else:
            lengths.append(n_tokens)
    if len(faults) == len(prompts):
        raise UserError(f"none of the prompts can be measured, the first being too long or refused: {faults[0]}")
    print(*(f"note: {note}\n" for note in notes), sep="", end="")
    print(f"{len(prompts)} prompts, the longest {max(lengths)} tokens, and {config.decode.max_new_tokens} new ones.")
    if faults:
        print(f"{len(faults)} of them cannot be measured, being too long or refused: {', '.join(faults[:3])}")
    return max(lengths)


def _memory(
    config: StudyConfig,
    pair: tuple[Description, Description],
    n_prompt_tokens: int,
    device: torch.device,
    dtype: torch.dtype,
) -> int:
    import torch

    from specstudy.measure.sinks import BLOCK_TOKENS
    from specstudy.models.attention import CHUNK_ELEMENTS, FEWEST_QUERIES
    from specstudy.models.cache import FIRST_ROOM
    from specstudy.models.device import device_memory, multiplies_packed_weights
    from specstudy.models.memory import Workload, estimate_memory

    work = Workload(
        n_prompt_tokens, config.decode.max_new_tokens, BLOCK_TOKENS, CHUNK_ELEMENTS, FEWEST_QUERIES, FIRST_ROOM
    )
    bytes_per_value = torch.finfo(dtype).bits // 8
    packed = multiplies_packed_weights(device, dtype)
    estimate = estimate_memory(pair[0].size, pair[1].size, bytes_per_value, work, packed)
    rows = [(name.replace("_", " "), f"{size / GIB:.2f}") for name, size in vars(estimate).items()]
    print()
    _print("Memory at most", [*rows, ("total", f"{estimate.total / GIB:.2f}")], header=["", "GiB"])
    return _verdict(estimate, bytes_per_value, device_memory(device).total_bytes, str(device))


def _verdict(estimate: MemoryEstimate, bytes_per_value: int, limit_bytes: int, device: str) -> int:
    from specstudy.models.memory import advice

    if estimate.total <= COMFORTABLE_SHARE * limit_bytes:
        print(f"It fits: {_gib(estimate.total)} of {_gib(limit_bytes)} on {device}.")
        return 0
    ways = "; ".join(advice(estimate, bytes_per_value, limit_bytes))
    if estimate.total <= limit_bytes:
        print(f"It barely fits: {_gib(estimate.total)} of {_gib(limit_bytes)} on {device}. To be safe: {ways}.")
        return 0
    print(f"It does not fit: {_gib(estimate.total)} needed, {device} has {_gib(limit_bytes)}. Change: {ways}.")
    return 1


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _gib(n_bytes: int) -> str:
    return f"{n_bytes / GIB:.1f} GiB"


def _print(title: str, rows: Sequence[Row], header: Sequence[str] = ("", "")) -> None:
    table = report_table(title)
    table.show_header = any(header)
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    report_console().print(table)
